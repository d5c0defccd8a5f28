// Encodings of numbers below 32 bits: pure code that CPU and GPU compilers both read.
//
// Encoding rounds to nearest even and keeps NaN. Overflow becomes infinity in f16 and bf16. The 8-bit types, which hold
// quantised values, saturate instead: infinities become the largest finite value, and a NaN becomes 0 in i8.
#pragma once

#include <cstdint>

namespace onchip {

/// The layout of a binary floating-point type below 32 bits: sign, exponent, mantissa.
struct FloatLayout {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t max_finite;  ///< encoding of the largest finite value
  std::uint32_t overflow;    ///< encoding that larger values get
  std::uint32_t nan;
  bool has_infinity;  ///< the code after max_finite

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int sign_shift() const { return exponent_bits + mantissa_bits; }
};

inline constexpr FloatLayout kBFloat16Layout{8, 7, 0x7F7F, 0x7F80, 0x7FC0, true};
inline constexpr FloatLayout kFloat16Layout{5, 10, 0x7BFF, 0x7C00, 0x7E00, true};
inline constexpr FloatLayout kFloat8E4M3Layout{4, 3, 0x7E, 0x7E, 0x7F, false};
inline constexpr FloatLayout kFloat8E5M2Layout{5, 2, 0x7B, 0x7B, 0x7E, true};

/// 2^exponent as a float, −149 ≤ exponent ≤ 127.
constexpr float exp2_of_int(int exponent) {
  return exponent >= -126 ? __builtin_bit_cast(float, static_cast<std::uint32_t>(exponent + 127) << 23)
                          : __builtin_bit_cast(float, std::uint32_t{1} << (exponent + 149));
}

constexpr std::uint32_t encode(const FloatLayout& layout, double value) {
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, value);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 63) << layout.sign_shift();
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  if (magnitude > (std::uint64_t{0x7FF} << 52)) return sign | layout.nan;
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  const int min_exponent = 1 - layout.bias();
  const int kept_exponent = exponent < min_exponent ? min_exponent : exponent;
  const int shift = 52 - layout.mantissa_bits + (kept_exponent - exponent);
  if (shift > 53) return sign;  // below half of the smallest denormal
  const std::uint64_t mantissa = (magnitude & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1} << 52);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t rounded = (mantissa + half - 1 + ((mantissa >> shift) & 1)) >> shift;
  // The implicit bit of `rounded` adds one to the exponent field, and so does a carry out of the mantissa.
  const std::uint64_t code =
      (static_cast<std::uint64_t>(kept_exponent - min_exponent) << layout.mantissa_bits) + rounded;
  return sign | (code > layout.max_finite ? layout.overflow : static_cast<std::uint32_t>(code));
}

constexpr float decode(const FloatLayout& layout, std::uint32_t code) {
  const std::uint32_t sign = (code >> layout.sign_shift()) << 31;
  const std::uint32_t magnitude = code & ((1u << layout.sign_shift()) - 1);
  if (magnitude > layout.max_finite) {
    const bool is_infinity = layout.has_infinity && magnitude == layout.max_finite + 1;
    return __builtin_bit_cast(float, sign | (is_infinity ? 0x7F800000u : 0x7FC00000u));
  }
  const std::uint32_t exponent = magnitude >> layout.mantissa_bits;
  if (exponent == 0) {
    const float value = static_cast<float>(magnitude) * exp2_of_int(1 - layout.bias() - layout.mantissa_bits);
    return sign ? -value : value;
  }
  return __builtin_bit_cast(float, sign | ((magnitude << (23 - layout.mantissa_bits)) +
                                           (static_cast<std::uint32_t>(127 - layout.bias()) << 23)));
}

/// To nearest even, saturating; NaN becomes 0.
constexpr std::int8_t encode_i8(double value) {
  if (value != value) return 0;
  if (value >= 127.0) return 127;
  if (value <= -128.0) return -128;
  const double shifted = value + 0x1.8p52;  // the sum is rounded to an integer, to nearest even
  return static_cast<std::int8_t>(shifted - 0x1.8p52);
}

}  // namespace onchip
