// Transposition in blocks of 128 bits: 4×4 floats or 2×2 doubles.
#if defined(ONCHIP_CPU_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_TRANSPOSE_INL_H_
#undef ONCHIP_CPU_SIMD_TRANSPOSE_INL_H_
#else
#define ONCHIP_CPU_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows and columns are handled in blocks of this many: both matrices have room for whole blocks.
template <typename T>
inline constexpr int64_t kTransposeBlock = HWY_TARGET == HWY_SCALAR ? 1 : 16 / sizeof(T);

template <typename T>
HWY_INLINE void transpose_block(const T* HWY_RESTRICT src, int64_t src_stride, T* HWY_RESTRICT dst,
                                int64_t dst_stride) {
#if HWY_TARGET == HWY_SCALAR
  (void)src_stride;
  (void)dst_stride;
  *dst = *src;
#else
  const hn::CappedTag<T, 16 / sizeof(T)> d;
  if constexpr (sizeof(T) == 8) {
    const auto r0 = hn::LoadU(d, src);
    const auto r1 = hn::LoadU(d, src + src_stride);
    hn::StoreU(hn::InterleaveLower(d, r0, r1), d, dst);
    hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, dst + dst_stride);
  } else {
    const hn::RepartitionToWide<decltype(d)> dw;
    const auto r0 = hn::LoadU(d, src);
    const auto r1 = hn::LoadU(d, src + src_stride);
    const auto r2 = hn::LoadU(d, src + 2 * src_stride);
    const auto r3 = hn::LoadU(d, src + 3 * src_stride);
    const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, low01, low23)), d, dst);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, low01, low23)), d, dst + dst_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, high01, high23)), d, dst + 2 * dst_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, high01, high23)), d, dst + 3 * dst_stride);
  }
#endif
}

/// dst[c][r] = src[r][c]. Rounds rows and columns up to whole blocks, and so reads and writes padding.
template <typename T>
HWY_INLINE void transpose(int64_t rows, int64_t cols, const T* HWY_RESTRICT src, int64_t src_stride,
                          T* HWY_RESTRICT dst, int64_t dst_stride) {
  constexpr int64_t kBlock = kTransposeBlock<T>;
  for (int64_t c = 0; c < cols; c += kBlock) {
    for (int64_t r = 0; r < rows; r += kBlock) {
      transpose_block(src + r * src_stride + c, src_stride, dst + c * dst_stride + r, dst_stride);
    }
  }
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_TRANSPOSE_INL_H_
