// Conversion between the stored types of tensors and what the products compute with.
#pragma once

#include <cstdint>

#include "cuda/device/ptx/math.cuh"
#include "cuda/shared/portable_config.hpp"

namespace onchip::cuda {

/// The value of an element whose bits are the lowest of `bits`.
template <Element kElement>
__forceinline__ float to_float(std::uint32_t bits) {
  if constexpr (kElement == Element::f32) return bits_float(bits);
  if constexpr (kElement == Element::bf16) return bf16_to_float(bits);
  if constexpr (kElement == Element::f16) return f16_to_float(bits);
  if constexpr (kElement == Element::e4m3) return e4m3_to_float(bits);
  if constexpr (kElement == Element::e5m2) return e5m2_to_float(bits);
  return i8_to_float(bits);
}

/// Two values rounded to a 16-bit type.
template <Element kElement>
__forceinline__ std::uint32_t pack(float low, float high) {
  static_assert(kElement == Element::bf16 || kElement == Element::f16);
  if constexpr (kElement == Element::bf16) return pack_bf16(low, high);
  return pack_f16(low, high);
}

/// Element `index` of global memory.
template <Element kElement>
__forceinline__ float load_element(const char* base, std::int64_t index) {
  if constexpr (element_bytes(kElement) == 4)
    return __ldg(reinterpret_cast<const float*>(base) + index);
  else if constexpr (element_bytes(kElement) == 2)
    return to_float<kElement>(__ldg(reinterpret_cast<const std::uint16_t*>(base) + index));
  else
    return to_float<kElement>(__ldg(reinterpret_cast<const std::uint8_t*>(base) + index));
}

/// Whether a float, or either half of a pair of 16-bit elements, is NaN or infinite: all bits of the exponent are set.
template <Element kElement>
__forceinline__ bool not_finite(std::uint32_t word) {
  if constexpr (kElement == Element::f32) return (word & 0x7F800000) == 0x7F800000;
  constexpr std::uint32_t kExponent = kElement == Element::bf16 ? 0x7F80 : 0x7C00;
  return (word & kExponent) == kExponent || (word >> 16 & kExponent) == kExponent;
}

}  // namespace onchip::cuda
