// What is known of a row of scores besides its sum of values: Σ 2^x over its logits x is sum · 2^exponent. States over
// disjoint keys merge, in a fixed order, whatever computed them: warps that share rows, or splits.
#pragma once

#include <cstdint>

#include "cuda/device/ptx/math.cuh"

namespace onchip::cuda {

struct RowState {
  float exponent;  // −∞: no key
  float sum;
};

/// −∞ − −∞ would be NaN.
__forceinline__ float finite_or_zero(float exponent) { return exponent == -kInfinity ? 0.0f : exponent; }

/// What sums relative to `exponent` are multiplied by to become relative to the largest of all exponents.
__forceinline__ float rescaling(float exponent, float largest) {
  return exp2_approx(exponent - finite_or_zero(largest));
}

/// A row closed by one more logit `sink` (an exponent of 2; −∞: none) without a value.
struct ClosedRow {
  float factor;  // what the row's sum of values is multiplied by
  float lse;     // the logarithm of the denominator
};

__forceinline__ ClosedRow close_row(const RowState& state, float sink) {
  const float largest = fmaxf(state.exponent, sink);
  if (largest == kInfinity) return {bits_float(0x7FC00000), kInfinity};
  const float rescale = rescaling(state.exponent, largest);
  const float sum = state.sum * rescale + rescaling(sink, largest);
  if (sum == 0.0f) return {0.0f, -kInfinity};
  return {rescale / sum, kLn2 * (finite_or_zero(largest) + log2_approx(sum))};
}

}  // namespace onchip::cuda
