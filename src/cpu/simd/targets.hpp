// Include before Highway. Between the portable fallback and AVX2 no target earns its compile time.
#pragma once

#if !defined(HWY_DISABLED_TARGETS)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif

namespace onchip::cpu {

/// Scratch rows start at multiples of this, which holds whole vectors of every fixed-size target (bytes).
inline constexpr int kScratchAlignment = 64;

}  // namespace onchip::cpu

/// The portable targets, whose Highway operations fall short of hardware in a few places (binary16, NaN in Min and
/// Max).
#define ONCHIP_FALLBACK_TARGET (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)

/// On a lambda that takes or captures vectors: without it they may travel through memory.
#define ONCHIP_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))
