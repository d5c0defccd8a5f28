// Elementary functions and number formats, as PTX has them.
#pragma once

#include <cstdint>

namespace onchip::cuda {

constexpr float kInfinity = __builtin_bit_cast(float, 0x7F800000);
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

__forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// tanh to a few units in the last place. Near zero 1 − 2/(1 + e^2x) cancels, so the Taylor series stands there.
__forceinline__ float tanh_accurate(float x) {
  const float square = x * x;
  const float series =
      x + x * square * (-1.0f / 3 + square * (2.0f / 15 + square * (-17.0f / 315 + square * (62.0f / 2835))));
  const float quotient = 1.0f - 2.0f / (1.0f + exp2_approx(2.0f * kLog2E * x));
  return square < 0.0625f ? series : quotient;
}

__forceinline__ std::uint32_t float_bits(float x) { return __float_as_uint(x); }
__forceinline__ float bits_float(std::uint32_t bits) { return __uint_as_float(bits); }

/// Two floats rounded to 16 bits each; `low` goes to the lower half.
__forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__forceinline__ std::uint32_t pack_f16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// Differences and products of two pairs of 16-bit numbers.
__forceinline__ std::uint32_t subtract_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t c;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(c) : "r"(b), "r"(0xBF80BF80), "r"(a));  // −1·b + a
  return c;
}
__forceinline__ std::uint32_t multiply_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t c;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(0x80008000));  // a·b − 0
  return c;
}
__forceinline__ std::uint32_t subtract_f16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t c;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}
__forceinline__ std::uint32_t multiply_f16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t c;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}

/// Keeps `sum` as it is, or makes it NaN where one of a pair is NaN or infinite: 0 · x is NaN for those.
__forceinline__ std::uint32_t spoil_bf16(std::uint32_t sum, std::uint32_t pair) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0u));
  return sum;
}
__forceinline__ std::uint32_t spoil_f16(std::uint32_t sum, std::uint32_t pair) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0u));
  return sum;
}

/// Rounded to the 10 mantissa bits that a TF32 product reads.
__forceinline__ std::uint32_t round_tf32(std::uint32_t bits) {
  std::uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(bits_float(bits)));
  return rounded;
}

__forceinline__ float bf16_to_float(std::uint32_t bits) { return bits_float(bits << 16); }

__forceinline__ float f16_to_float(std::uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<std::uint16_t>(bits)));
  return value;
}

/// e4m3's exponent and mantissa, moved to their places in a float, are short of the bias by 120.
__forceinline__ float e4m3_to_float(std::uint32_t bits) {
  const float magnitude = bits_float((bits & 0x7F) << 20) * 0x1p120f;
  const float value = (bits & 0x7F) == 0x7F ? bits_float(0x7FC00000) : magnitude;
  return bits & 0x80 ? -value : value;
}

/// e5m2 is the upper half of an f16.
__forceinline__ float e5m2_to_float(std::uint32_t bits) { return f16_to_float((bits & 0xFF) << 8); }

__forceinline__ float i8_to_float(std::uint32_t bits) {
  return static_cast<float>(static_cast<std::int8_t>(static_cast<std::uint8_t>(bits)));
}

/// The largest (or the sum) of the four lanes that share an accumulator's rows.
__forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 2));
}
__forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFF, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFF, x, 2);
}

}  // namespace onchip::cuda
