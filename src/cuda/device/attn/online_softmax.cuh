// Softmax over tiles of keys, one after another: a reference logit and a sum for each row, and what was accumulated so
// far rescaled when the reference changes. (Milakov and Gimelshein 2018)
//
// Any reference gives the same result as long as exponents stay in range. So the running maximum becomes the new
// reference only where it has risen by a factor of 2^kSlack since; mostly it has not, and nothing is rescaled. With
// kLazy false it does at once: no branch, in which the compiler would not mix the rescaling with other work.
#pragma once

#include "cuda/device/ptx/math.cuh"

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
    if constexpr (!kLazy) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        raise_reference(r, row_largest(acc_s, r), acc_o);
        weigh(acc_s, r);
      }
      return;
    }
    float largest[kRows];
    bool risen = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      largest[r] = row_largest(acc_s, r);
      risen = risen || (largest[r] - reference_[r]) * factor_ > kSlack;
    }
    if (__any_sync(0xFFFFFFFF, risen)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) raise_reference(r, largest[r], acc_o);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) weigh(acc_s, r);
  }

  /// Closes row r, which has one more logit `sink` (an exponent of 2; −∞: none) without a value. Returns what acc_o is
  /// to be multiplied by; `lse` is the logarithm of the denominator. All lanes of the quad must call.
  __forceinline__ float close(int r, float sink, float& lse) {
    const float largest = fmaxf(reference_[r] * factor_, sink);
    const float reference = largest == -kInfinity ? 0.0f : largest;
    const float rescale = exp2_approx(reference_[r] * factor_ - reference);
    const float sum = quad_sum(row_sum_[r]) * rescale + exp2_approx(sink - reference);
    lse = sum == 0.0f ? -kInfinity : kLn2 * (reference + log2_approx(sum));
    return sum == 0.0f ? 0.0f : rescale / sum;
  }

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

  /// Makes the larger of reference and `largest` the reference of row r.
  template <int kValueTiles>
  __forceinline__ void raise_reference(int r, float largest, float (&acc_o)[kRowTiles][kValueTiles][4]) {
    const float raised = fmaxf(reference_[r], largest);
    const float rescale = exp2_approx(reference_[r] * factor_ - finite_exponent(raised));
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
    const float exponent = finite_exponent(reference_[r]);
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& s = acc_s[r / 2][n][r % 2 * 2 + c];
        s = exp2_approx(fmaf(s, factor_, -exponent));
        row_sum_[r] += s;
      }
  }

  /// The exponent of a reference, or 0 for a row that has seen no key: −∞ − −∞ would be NaN.
  __forceinline__ float finite_exponent(float logit) const { return logit == -kInfinity ? 0.0f : logit * factor_; }

  float factor_;
  float reference_[kRows];
  float row_sum_[kRows];  // of this lane's columns
};

}  // namespace onchip::cuda
