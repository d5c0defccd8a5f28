// Merges results over disjoint sets of keys, in the order given:
//   m = max lse_i;  lse = m + ln Σ e^(lse_i − m);  o = Σ o_i·e^(lse_i − lse).
//
// One warp a row of o. The result may be one of the parts: a row's lse are all read before one is written, and each
// element of o is read and written by one lane. A part whose lse is −∞ has no keys; its o is not read.
#include <cstdint>

#include "cuda/device/tile/element_conversion.cuh"
#include "cuda/shared/merge_params.hpp"

namespace onchip::cuda {

constexpr int kWarps = 4;

__forceinline__ float load_any(Element type, const char* row, int d) {
  switch (type) {
    case Element::bf16:
      return to_float<Element::bf16>(reinterpret_cast<const std::uint16_t*>(row)[d]);
    case Element::f16:
      return to_float<Element::f16>(reinterpret_cast<const std::uint16_t*>(row)[d]);
    default:
      return reinterpret_cast<const float*>(row)[d];
  }
}

__forceinline__ void store_any(Element type, char* row, int d, float value) {
  switch (type) {
    case Element::bf16:
      return store_element<Element::bf16>(row, d, value);
    case Element::f16:
      return store_element<Element::f16>(row, d, value);
    default:
      return store_element<Element::f32>(row, d, value);
  }
}

extern "C" __global__ void __launch_bounds__(kWarps * 32) ONCHIP_KERNEL_NAME(const __grid_constant__ MergeParams p) {
  __shared__ float s_weights[kWarps][kMaxMergeParts];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const std::int64_t batch = row / p.heads / p.positions, position = row / p.heads % p.positions, head = row % p.heads;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto lse_address = [&](const MergePart& part) {
    return reinterpret_cast<float*>(part.lse + part.lse_layout.offset(batch, position, head));
  };

  float lse = -kInfinity;
  if (lane < p.num_parts) lse = *lse_address(p.parts[lane]);
  float largest = lse;
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, lanes));
  const float unscaled = lse == -kInfinity ? 0.0f : exp2_approx(kLog2E * (lse - largest));
  float sum = 0;
  for (int i = 0; i < p.num_parts; ++i) sum += __shfl_sync(0xFFFFFFFF, unscaled, i);
  float* weights = s_weights[threadIdx.x / 32];
  weights[lane] = lse == -kInfinity ? -1.0f : unscaled / sum;  // below 0: no keys
  __syncwarp();

  for (int d = lane; d < p.head_dim; d += 32) {
    float total = 0;
    for (int i = 0; i < p.num_parts; ++i)
      if (!(weights[i] < 0.0f))
        total += weights[i] *
                 load_any(p.parts[i].o_type, p.parts[i].o + p.parts[i].o_layout.offset(batch, position, head), d);
    store_any(p.result.o_type, p.result.o + p.result.o_layout.offset(batch, position, head), d, total);
  }
  if (lane == 0 && p.result.lse != nullptr)
    *lse_address(p.result) = sum == 0.0f ? -kInfinity : largest + kLn2 * log2_approx(sum);
}

}  // namespace onchip::cuda
