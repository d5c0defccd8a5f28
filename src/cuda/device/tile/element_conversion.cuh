// Conversion between the stored types of tensors and what the products compute with.
#pragma once

#include <cstdint>

#include "cuda/device/ptx/math.cuh"
#include "cuda/shared/element.hpp"
#include "shared/number_format.hpp"

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

/// Bytes 0, 1 (kHigh: 2, 3) of `word` as the upper halves of two 16-bit fields.
template <bool kHigh>
__forceinline__ std::uint32_t spread_bytes(std::uint32_t word) {
  return __byte_perm(word, 0, kHigh ? 0x3424 : 0x1404);
}

/// The same as the lower halves, below bytes of `high`.
template <bool kHigh>
__forceinline__ std::uint32_t spread_bytes_below(std::uint32_t word, std::uint32_t high) {
  return __byte_perm(word, high, kHigh ? 0x4342 : 0x4140);
}

/// Two of a word's four elements of 8 bits as two of 16; those of floating point must be finite.
///
/// Floating point: sign, exponent and mantissa move to their places, where they are short of the wider type's bias: a
/// product with a power of two adds it, and makes denormals normal. Integers become the mantissas of numbers from which
/// a constant is subtracted: the sign bit counts −128, and is 128 in the other number.
template <Element kStored, Element kElement, bool kHigh>
__forceinline__ std::uint32_t convert_two(std::uint32_t word) {
  constexpr bool kToBf16 = kElement == Element::bf16;
  if constexpr (kStored == Element::i8 && kToBf16)
    return subtract_bf16(spread_bytes_below<kHigh>(word & 0x7F7F7F7F, 0x43434343),
                         spread_bytes_below<kHigh>(word & 0x80808080, 0x43434343));
  else if constexpr (kStored == Element::i8)
    return subtract_f16(spread_bytes_below<kHigh>(word ^ 0x80808080, 0x64646464), 0x64806480);
  const std::uint32_t wide = spread_bytes<kHigh>(word);
  constexpr int kShift = kStored == Element::e4m3 ? (kToBf16 ? 4 : 1) : (kToBf16 ? 3 : 0);
  if constexpr (kShift == 0) return wide;
  const std::uint32_t moved = (wide >> kShift & 0x7F007F00 >> kShift) | (wide & 0x80008000);
  if constexpr (kToBf16)
    return multiply_bf16(moved, kStored == Element::e4m3 ? 0x7B807B80 : 0x77807780);  // 2^120, 2^112
  else
    return multiply_f16(moved, 0x5C005C00);  // 2^8
}

/// Whether one of 16 elements of 8 bits is NaN or infinite: their exponents (and e4m3's mantissa) plus one carry over.
template <Element kStored>
__forceinline__ bool any_not_finite(const uint4& words) {
  if constexpr (kStored == Element::i8) return false;
  constexpr std::uint32_t kBits = kStored == Element::e4m3 ? 0x7F7F7F7F : 0x7C7C7C7C;
  constexpr std::uint32_t kOne = kStored == Element::e4m3 ? 0x01010101 : 0x04040404;
  const auto carry = [](std::uint32_t word) { return (word & kBits) + kOne; };
  return ((carry(words.x) | carry(words.y) | carry(words.z) | carry(words.w)) & 0x80808080) != 0;
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

/// Element `index` of global memory becomes `value`, rounded once.
template <Element kElement>
__forceinline__ void store_element(char* base, std::int64_t index, float value) {
  if constexpr (kElement == Element::f32)
    reinterpret_cast<float*>(base)[index] = value;
  else if constexpr (kElement == Element::bf16 || kElement == Element::f16)
    reinterpret_cast<std::uint16_t*>(base)[index] = static_cast<std::uint16_t>(pack<kElement>(value, 0.0f));
  else if constexpr (kElement == Element::i8)
    base[index] = encode_i8(value);
  else
    base[index] = static_cast<char>(encode(kElement == Element::e4m3 ? kFloat8E4M3Layout : kFloat8E5M2Layout, value));
}

/// Whether a float, or either half of a pair of 16-bit elements, is NaN or infinite: all bits of the exponent are set.
template <Element kElement>
__forceinline__ bool not_finite(std::uint32_t word) {
  if constexpr (kElement == Element::f32) return (word & 0x7F800000) == 0x7F800000;
  constexpr std::uint32_t kExponent = kElement == Element::bf16 ? 0x7F80 : 0x7C00;
  return (word & kExponent) == kExponent || (word >> 16 & kExponent) == kExponent;
}

/// A float, or a pair of 16-bit elements, with those that are not finite replaced by 0.
template <Element kElement>
__forceinline__ std::uint32_t finite_part(std::uint32_t word) {
  if constexpr (kElement == Element::f32) return not_finite<kElement>(word) ? 0 : word;
  const std::uint32_t low = not_finite<kElement>(word & 0xFFFF) ? 0 : word & 0xFFFF;
  const std::uint32_t high = not_finite<kElement>(word & 0xFFFF0000) ? 0 : word & 0xFFFF0000;
  return low | high;
}

}  // namespace onchip::cuda
