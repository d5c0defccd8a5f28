// Softmax over tiles of keys with a deferred maximum.
//
//   o = Σ 2^(s_j − m)·v_j / Σ 2^(s_j − m),  lse = ln 2·(m + log2 Σ 2^(s_j − m))   for any reference m
//
// The running maximum of the online softmax only keeps exponents in range. So a row takes its reference from the first
// tiles, as the online softmax does, and later tiles are weighed against it as it stands: no maximum over the tile, no
// shuffles, nothing between the product and the exponentials. The sum l says whether the reference still serves, since
// it is at least every weight: beyond 2^kRaiseLog2 the reference is raised by log2 l, and weights, l and o scaled
// accordingly. A score further above the reference than the weights' range makes l or o infinite: the caller sees that
// at the end, and does the tile again without deferring. The reference is a score of the row, so l ≥ 1 but for
// rounding, and nothing underflows that the running maximum would have kept.
#pragma once

#include "cuda/device/attn/row_state.cuh"

namespace onchip::cuda {

/// State of the two rows of one thread of an m64 accumulator. kRaiseLog2 depends on the type of the weights.
template <int kRaiseLog2>
class DeferredSoftmax {
 public:
  /// `exponent_factor` > 0 turns a score into an exponent of 2.
  __forceinline__ explicit DeferredSoftmax(float exponent_factor) : factor_(exponent_factor) {}

  /// Turns scores into weights, with the largest score so far as the reference, or with the reference as it stands
  /// where kDeferred: then every row must have seen a key. Returns whether o must be multiplied by rescale, the same
  /// for all lanes of the warp.
  template <bool kDeferred, int kColTiles>
  __forceinline__ bool weigh(float (&acc_s)[1][kColTiles][4], float (&rescale)[2]) {
    bool moved = false;
    if constexpr (!kDeferred) moved = raise_to_largest(acc_s, rescale);
    float offset[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      offset[r] = exponent(reference_[r]);
      if constexpr (kDeferred)
        // Without a reference, or with one whose rounding matters, everything becomes infinite, and is done again.
        offset[r] = is_large(offset[r]) ? -kInfinity : offset[r];
      else
        offset[r] = reference_[r] == -kInfinity ? 0.0f : differences_if_large(acc_s, r, offset[r]);
    }
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float& s = acc_s[0][n][c];
        s = exp2_approx(fmaf(s, factor_, -offset[c / 2]));
        row_sum_[c / 2] += s;
      }
    if constexpr (kDeferred) moved = raise_by_sum(acc_s, rescale);
    return moved;
  }

  /// Row r so far. All lanes of the quad must call.
  __forceinline__ RowState state(int r) const { return {exponent(reference_[r]), sum(r)}; }

 private:
  __forceinline__ float sum(int r) const { return quad_sum(row_sum_[r]); }

  template <int kColTiles>
  __forceinline__ bool raise_to_largest(const float (&acc_s)[1][kColTiles][4], float (&rescale)[2]) {
    float largest[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float even = acc_s[0][0][2 * r], odd = acc_s[0][0][2 * r + 1];
#pragma unroll
      for (int n = 1; n < kColTiles; ++n)
        even = fmaxf(even, acc_s[0][n][2 * r]), odd = fmaxf(odd, acc_s[0][n][2 * r + 1]);
      largest[r] = quad_max(fmaxf(even, odd));
    }
    const bool risen = largest[0] > reference_[0] || largest[1] > reference_[1];
    if (!__any_sync(0xFFFFFFFF, risen)) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) move_reference(r, fmaxf(reference_[r], largest[r]), rescale);
    return true;
  }

  template <int kColTiles>
  __forceinline__ bool raise_by_sum(float (&acc_s)[1][kColTiles][4], float (&rescale)[2]) {
    constexpr float kRaise = static_cast<float>(1ull << kRaiseLog2);
    if (!__any_sync(0xFFFFFFFF, row_sum_[0] > kRaise || row_sum_[1] > kRaise)) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float total = sum(r);
      const float rise = total > kRaise && total < kInfinity ? log2_approx(total) / factor_ : 0.0f;
      move_reference(r, reference_[r] + rise, rescale);
#pragma unroll
      for (int n = 0; n < kColTiles; ++n) acc_s[0][n][2 * r] *= rescale[r], acc_s[0][n][2 * r + 1] *= rescale[r];
    }
    return true;
  }

  __forceinline__ void move_reference(int r, float reference, float (&rescale)[2]) {
    const float rise = is_large(exponent(reference)) ? (reference - reference_[r]) * factor_
                                                     : exponent(reference) - exponent(reference_[r]);
    rescale[r] = reference == reference_[r] ? 1.0f : exp2_approx(-rise);
    reference_[r] = reference;
    row_sum_[r] *= rescale[r];
  }

  /// Scores so large that their exponents' rounding could push weights out of range: differences are taken first.
  template <int kColTiles>
  __forceinline__ float differences_if_large(float (&acc_s)[1][kColTiles][4], int r, float offset) const {
    if (!is_large(offset)) return offset;
#pragma unroll
    for (int n = 0; n < kColTiles; ++n) acc_s[0][n][2 * r] -= reference_[r], acc_s[0][n][2 * r + 1] -= reference_[r];
    return 0.0f;
  }

  /// Rounded once, so that sums relative to it can be moved to another without an error.
  __forceinline__ float exponent(float reference) const { return __fmul_rn(reference, factor_); }
  static __forceinline__ bool is_large(float exponent) { return fabsf(exponent) > 0x1p20f; }

  float factor_;
  float reference_[2] = {-kInfinity, -kInfinity};  // scores
  float row_sum_[2] = {0.0f, 0.0f};                // of this lane's columns
};

}  // namespace onchip::cuda
