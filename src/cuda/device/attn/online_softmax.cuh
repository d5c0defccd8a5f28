// Softmax over tiles of keys, one after another: a reference logit and a sum for each row, and what was accumulated so
// far rescaled when the reference changes. (Milakov and Gimelshein 2018)
//
// Any reference gives the same result as long as exponents stay in range. So the running maximum becomes the new
// reference only where it has risen by a factor of 2^kSlack since; mostly it has not, and nothing is rescaled. With
// kLazy false it does at once: no branch, in which the compiler would not mix the rescaling with other work.
#pragma once

#include "cuda/device/attn/row_state.cuh"

namespace onchip::cuda {

template <int kRowTiles, bool kLazy>
class OnlineSoftmax {
 public:
  static constexpr int kRows = kRowTiles * 2;

  /// `exponent_factor` > 0 turns a score into an exponent of 2.
  __forceinline__ explicit OnlineSoftmax(float exponent_factor) : factor_(exponent_factor) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) reference_[r] = -kInfinity, row_sum_[r] = 0.0f;
  }

  /// Turns scores into weights relative to the reference, and keeps acc_o relative to it.
  template <int kColTiles, int kValueTiles>
  __forceinline__ void step(float (&acc_s)[kRowTiles][kColTiles][4], float (&acc_o)[kRowTiles][kValueTiles][4]) {
    float largest[kRows];
    bool risen = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      largest[r] = row_largest(acc_s, r);
      risen = risen || has_risen(r, largest[r]);
    }
    if (!kLazy || __any_sync(0xFFFFFFFF, risen)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) raise_reference(r, largest[r], acc_o);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) weigh(acc_s, r);
  }

  /// Row r so far. All lanes of the quad must call.
  __forceinline__ RowState state(int r) const { return {exponent(reference_[r]), quad_sum(row_sum_[r])}; }

 private:
  static constexpr float kSlack = 8.0f;  // weights up to 2^8: in range, and as precise, in every type that holds them

  template <int kColTiles>
  static __forceinline__ float row_largest(const float (&acc_s)[kRowTiles][kColTiles][4], int r) {
    float largest = acc_s[r / 2][0][r % 2 * 2];
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) largest = fmaxf(largest, acc_s[r / 2][n][r % 2 * 2 + c]);
    return quad_max(largest);
  }

  __forceinline__ bool has_risen(int r, float largest) const { return (largest - reference_[r]) * factor_ > kSlack; }

  /// Makes the larger of reference and `largest` the reference of row r, if it has risen: no row depends on another.
  template <int kValueTiles>
  __forceinline__ void raise_reference(int r, float largest, float (&acc_o)[kRowTiles][kValueTiles][4]) {
    const float raised = kLazy && !has_risen(r, largest) ? reference_[r] : fmaxf(reference_[r], largest);
    const float by_exponents = exponent(reference_[r]) - finite_or_zero(exponent(raised));
    const bool large = is_large(exponent(raised));
    const float rescale = exp2_approx(large ? (reference_[r] - raised) * factor_ : by_exponents);
    reference_[r] = raised;
    row_sum_[r] *= rescale;
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) acc_o[r / 2][n][r % 2 * 2 + c] *= rescale;
  }

  /// Scores of row r become weights.
  template <int kColTiles>
  __forceinline__ void weigh(float (&acc_s)[kRowTiles][kColTiles][4], int r) {
    const float reference = finite_or_zero(reference_[r]);
    float offset = exponent(reference);
    if (is_large(offset)) {
#pragma unroll
      for (int n = 0; n < kColTiles; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) acc_s[r / 2][n][r % 2 * 2 + c] -= reference;
      offset = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& s = acc_s[r / 2][n][r % 2 * 2 + c];
        s = exp2_approx(fmaf(s, factor_, -offset));
        row_sum_[r] += s;
      }
  }

  /// Rounded once, so that sums relative to it can be moved to another without an error.
  __forceinline__ float exponent(float reference) const { return __fmul_rn(reference, factor_); }

  /// An exponent whose rounding could push weights out of range: then differences are taken before the unit.
  static __forceinline__ bool is_large(float exponent) { return fabsf(exponent) > 0x1p20f && exponent > -kInfinity; }

  float factor_;
  float reference_[kRows];
  float row_sum_[kRows];  // of this lane's columns
};

}  // namespace onchip::cuda
