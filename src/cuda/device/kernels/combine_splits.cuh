// Merges the partial results of the splits of the keys:  o = Σ_s o_s·2^(x_s − x) / Σ_s l_s·2^(x_s − x),  x = max x_s.
//
// One CTA a row of o (a query of a head); its warps take every kWarps-th split each, and meet in shared memory: a fixed
// order. Splits that saw no key of the row have written no values for it, and are not read.
//
// Bytes: the partial results once, mostly from L2; o and lse once.
#include <cstdint>

#include "cuda/device/attn/row_state.cuh"
#include "cuda/device/ptx/dependent_launch.cuh"
#include "cuda/device/tile/element_conversion.cuh"
#include "cuda/shared/portable_params.hpp"
#include "cuda/shared/split.hpp"

namespace onchip::cuda {

constexpr Element kOutput = ONCHIP_COMBINE_OUTPUT;
constexpr int kWarps = 4;
constexpr int kColumns = 128;  // of one pass: four a lane

struct CombineShared {
  RowState states[kMaxFixedSplits];  // then {rescaling, ·}
  float sums[kWarps][kColumns];
};

/// The largest of a value over the CTA, or its sum in a fixed order; `scratch` holds a number a warp.
template <bool kSum>
__forceinline__ float reduce(float value, float* scratch) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFF, value, lanes);
    value = kSum ? value + other : fmaxf(value, other);
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float total = scratch[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) total = kSum ? total + scratch[w] : fmaxf(total, scratch[w]);
  __syncthreads();
  return total;
}

/// Loads the row's states, and leaves in shared memory what each split's values are multiplied by, 0 where it has none.
__forceinline__ RowState load_states(const CombineParams& p, CombineShared& shared, std::int64_t row) {
  const auto* states = reinterpret_cast<const RowState*>(p.states) + row;
  float largest = -kInfinity;
  for (int s = static_cast<int>(threadIdx.x); s < p.num_splits; s += kWarps * 32) {
    shared.states[s] = states[s * p.rows];
    largest = fmaxf(largest, shared.states[s].exponent);
  }
  largest = reduce<false>(largest, shared.sums[0]);
  float sum = 0;
  for (int s = static_cast<int>(threadIdx.x); s < p.num_splits; s += kWarps * 32) {
    const RowState state = shared.states[s];
    const float rescale = state.sum == 0.0f ? 0.0f : rescaling(state.exponent, largest);
    sum += state.sum * rescale;
    shared.states[s] = {rescale, state.sum};
  }
  return {largest, reduce<true>(sum, shared.sums[0])};
}

/// Columns column … column+3 of this warp's splits.
__forceinline__ float4 sum_of_warp(const CombineParams& p, const CombineShared& shared, std::int64_t row, int column) {
  const char* base = p.partial_o + (row * p.padded_head_dim_v + column) * 4;
  const std::int64_t split_bytes = p.rows * p.padded_head_dim_v * 4;
  float4 sum{};
#pragma unroll 8
  for (int s = static_cast<int>(threadIdx.x) / 32; s < p.num_splits; s += kWarps) {
    if (shared.states[s].sum == 0.0f) continue;
    const float weight = shared.states[s].exponent;
    const float4 part = *reinterpret_cast<const float4*>(base + s * split_bytes);
    sum.x = fmaf(part.x, weight, sum.x), sum.y = fmaf(part.y, weight, sum.y);
    sum.z = fmaf(part.z, weight, sum.z), sum.w = fmaf(part.w, weight, sum.w);
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(kWarps * 32) ONCHIP_KERNEL_NAME(const __grid_constant__ CombineParams p) {
  __shared__ CombineShared shared;
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.x;
  const std::int64_t query = row / p.num_heads, head = row % p.num_heads;
  const std::int64_t batch = query / p.seqlen_q, i = query % p.seqlen_q;
  const RowState state = load_states(p, shared, row);
  float sink = -kInfinity;
  if (p.sink != nullptr) sink = kLog2E * *reinterpret_cast<const float*>(p.sink + p.sink_layout.offset(0, 0, head));
  const ClosedRow closed = close_row(state, sink);
  if (p.lse != nullptr && threadIdx.x == 0)
    *reinterpret_cast<float*>(p.lse + p.lse_layout.offset(batch, i, head)) = closed.lse;
  char* o = p.o + p.o_layout.offset(batch, i, head);
  for (int first = 0; first < p.head_dim_v; first += kColumns) {
    const int lane_column = static_cast<int>(threadIdx.x) % 32 * 4;
    float4 sum{};
    if (first + lane_column < p.head_dim_v) sum = sum_of_warp(p, shared, row, first + lane_column);
    *reinterpret_cast<float4*>(&shared.sums[threadIdx.x / 32][lane_column]) = sum;
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x);
    float total = shared.sums[0][column];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) total += shared.sums[w][column];
    if (first + column < p.head_dim_v) store_element<kOutput>(o, first + column, total * closed.factor);
    __syncthreads();
  }
}

}  // namespace onchip::cuda
