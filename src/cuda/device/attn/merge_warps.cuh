// Joins what warps that share rows have found in their parts of the keys, through shared memory, in the warps' order.
#pragma once

#include <cstdint>

#include "cuda/device/attn/epilogue.cuh"
#include "cuda/device/attn/row_state.cuh"
#include "cuda/device/attn/scores.cuh"

namespace onchip::cuda {

template <PortableConfig kConfig>
class MergeWarps {
 public:
  static constexpr int kRowTiles = Scores<kConfig>::kRowTiles;
  static constexpr int kRows = Scores<kConfig>::kRows;
  static constexpr int kValueTiles = kConfig.padded_head_dim_v() / 8;

  __forceinline__ explicit MergeWarps(char* shared)
      : s_parts_(reinterpret_cast<float4*>(shared)),
        s_states_(reinterpret_cast<RowState*>(shared + kConfig.states_offset())) {}

  /// Gives this warp's sums and states, and turns the states into those of all keys. All threads of the CTA must call;
  /// what was in shared memory must no longer be needed.
  __forceinline__ void exchange(const float (&acc_o)[kRowTiles][kValueTiles][4], RowState (&states)[kRows]) {
    const int thread = fresh_thread_index();
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n)
        *part(thread, thread / 32 % kConfig.key_warps, mt, n) =
            make_float4(acc_o[mt][n][0], acc_o[mt][n][1], acc_o[mt][n][2], acc_o[mt][n][3]);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (thread % 4 == 0) *state(thread, thread / 32 % kConfig.key_warps, r) = states[r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float largest = -kInfinity;
#pragma unroll
      for (int w = 0; w < kConfig.key_warps; ++w) largest = fmaxf(largest, state(thread, w, r)->exponent);
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kConfig.key_warps; ++w) {
        const RowState of_warp = *state(thread, w, r);
        weights_[r][w] = of_warp.sum == 0.0f ? 0.0f : rescaling(of_warp.exponent, largest);
        sum += of_warp.sum * weights_[r][w];
      }
      states[r] = {largest, sum};
    }
  }

  /// Writes the rows' sums of values times factor[row] into the tile s_o; each warp some of the columns.
  __forceinline__ void stage(char* s_o, const float (&factor)[kRows]) const {
    const int thread = fresh_thread_index();
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll 2
      for (int n = thread / 32 % kConfig.key_warps; n < kValueTiles; n += kConfig.key_warps) {
        float sum[4] = {};
#pragma unroll
        for (int w = 0; w < kConfig.key_warps; ++w) {
          const float4 of_warp = *part(thread, w, mt, n);
          sum[0] = fmaf(of_warp.x, weights_[2 * mt][w], sum[0]);
          sum[1] = fmaf(of_warp.y, weights_[2 * mt][w], sum[1]);
          sum[2] = fmaf(of_warp.z, weights_[2 * mt + 1][w], sum[2]);
          sum[3] = fmaf(of_warp.w, weights_[2 * mt + 1][w], sum[3]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
          stage_pair<kConfig>(s_o, Scores<kConfig>::tile_row(thread, 2 * mt + half),
                              Scores<kConfig>::tile_column(thread, n, 0), sum[2 * half] * factor[2 * mt + half],
                              sum[2 * half + 1] * factor[2 * mt + half]);
      }
  }

 private:
  /// Accumulators of one warp for one place of its rows, a float4 a lane: no bank conflicts.
  __forceinline__ float4* part(int thread, int key_warp, int mt, int n) const {
    const int warp = thread / 32 / kConfig.key_warps * kConfig.key_warps + key_warp;
    return s_parts_ + ((warp * kRowTiles + mt) * kValueTiles + n) * 32 + thread % 32;
  }
  __forceinline__ RowState* state(int thread, int key_warp, int r) const {
    return s_states_ + key_warp * kConfig.tile_m + Scores<kConfig>::tile_row(thread, r);
  }

  float4* s_parts_;
  RowState* s_states_;
  float weights_[kRows][kConfig.key_warps];
};

}  // namespace onchip::cuda
