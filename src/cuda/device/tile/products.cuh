// The two matrix products of attention on tiles in shared memory, with accumulators in registers.
//
// A warp owns kRowTiles · 16 query rows. All arithmetics share the accumulator layout of mma.sync m16n8: element e of
// acc[mt][n] is row 16·mt + g + 8·(e/2) and column 8·n + 2·t + e%2, with g = lane/4, t = lane%4. So whatever is done to
// scores between the products is written once.
#pragma once

#include <cstdint>

#include "cuda/device/ptx/async_copy.cuh"
#include "cuda/device/ptx/mma.cuh"
#include "cuda/device/tile/element_conversion.cuh"

namespace onchip::cuda {

template <Math kMath>
__forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kMath == Math::bf16)
    mma_bf16(c, a, b0, b1);
  else if constexpr (kMath == Math::f16)
    mma_f16(c, a, b0, b1);
  else
    mma_tf32(c, a, b0, b1);
}

template <Math kMath>
__forceinline__ void load_operand(std::uint32_t (&r)[4], std::uint32_t shared) {
  load_matrices(r, shared);
  if constexpr (kMath == Math::tf32)
    for (std::uint32_t& word : r) word = round_tf32(word);
}

/// acc_s += q · kᵀ over one chunk of the head dimension, on tensor cores. One step covers 32 bytes of each row: 16
/// elements of 16 bits or 8 of 32.
template <Math kMath, int kRowBytes, int kStepBytes, int kRowTiles, int kColTiles>
__forceinline__ void scores_mma(float (&acc_s)[kRowTiles][kColTiles][4], const char* s_q, const char* s_k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t q = shared_address(s_q) + lane % 16 * kRowBytes + lane / 16 * 16;
  const std::uint32_t k = shared_address(s_k) + (lane % 8 + lane / 16 * 8) * kRowBytes + lane / 8 % 2 * 16;
#pragma unroll
  for (int step = 0; step < kStepBytes / 32; ++step) {
    std::uint32_t a[kRowTiles][4];
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt) load_operand<kMath>(a[mt], q + mt * 16 * kRowBytes + step * 32);
#pragma unroll
    for (int n = 0; n < kColTiles; n += 2) {
      std::uint32_t b[4];
      load_operand<kMath>(b, k + n * 8 * kRowBytes + step * 32);
#pragma unroll
      for (int mt = 0; mt < kRowTiles; ++mt) {
        multiply_add<kMath>(acc_s[mt][n], a[mt], b[0], b[1]);
        multiply_add<kMath>(acc_s[mt][n + 1], a[mt], b[2], b[3]);
      }
    }
  }
}

/// Weights rounded to a 16-bit type, two neighbours a word. Two neighbouring column tiles are a left operand as they
/// stand.
template <Element kElement, int kRowTiles, int kColTiles>
__forceinline__ void pack_weights(std::uint32_t (&packed)[kRowTiles][kColTiles][2],
                                  const float (&p)[kRowTiles][kColTiles][4]) {
#pragma unroll
  for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        packed[mt][n][half] = pack<kElement>(p[mt][n][half * 2], p[mt][n][half * 2 + 1]);
}

/// acc_o += p · v for 16-bit types.
template <Math kMath, int kRowBytes, int kRowTiles, int kColTiles, int kValueTiles>
__forceinline__ void values_mma16(float (&acc_o)[kRowTiles][kValueTiles][4],
                                  const std::uint32_t (&p)[kRowTiles][kColTiles][2], const char* s_v) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t v = shared_address(s_v) + lane % 16 * kRowBytes + lane / 16 * 16;
#pragma unroll
  for (int step = 0; step < kColTiles / 2; ++step) {
    std::uint32_t a[kRowTiles][4];
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[mt][i] = p[mt][2 * step + i / 2][i % 2];
#pragma unroll
    for (int n = 0; n < kValueTiles; n += 2) {
      std::uint32_t b[4];
      load_matrices_transposed(b, v + step * 16 * kRowBytes + n * 16);
#pragma unroll
      for (int mt = 0; mt < kRowTiles; ++mt) {
        multiply_add<kMath>(acc_o[mt][n], a[mt], b[0], b[1]);
        multiply_add<kMath>(acc_o[mt][n + 1], a[mt], b[2], b[3]);
      }
    }
  }
}

/// acc_o += p · v in TF32. The operand wants columns t and t+4 where the accumulator has 2t and 2t+1: the sum over keys
/// is the same in any order, so v's rows are taken in that order instead.
template <int kRowBytes, int kRowTiles, int kColTiles, int kValueTiles>
__forceinline__ void values_tf32(float (&acc_o)[kRowTiles][kValueTiles][4], const float (&p)[kRowTiles][kColTiles][4],
                                 const char* s_v) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const char* v = s_v + lane % 4 * 2 * kRowBytes + lane / 4 * 4;
#pragma unroll
  for (int step = 0; step < kColTiles; ++step) {
    std::uint32_t a[kRowTiles][4];
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[mt][i] = round_tf32(float_bits(p[mt][step][i % 2 * 2 + i / 2]));
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n) {
      const char* column = v + step * 8 * kRowBytes + n * 32;
      const std::uint32_t b0 = round_tf32(*reinterpret_cast<const std::uint32_t*>(column));
      const std::uint32_t b1 = round_tf32(*reinterpret_cast<const std::uint32_t*>(column + kRowBytes));
#pragma unroll
      for (int mt = 0; mt < kRowTiles; ++mt) mma_tf32(acc_o[mt][n], a[mt], b0, b1);
    }
  }
}

__forceinline__ void load_eight(float (&values)[8], const char* shared) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 four = reinterpret_cast<const float4*>(shared)[half];
    values[half * 4] = four.x, values[half * 4 + 1] = four.y, values[half * 4 + 2] = four.z,
                  values[half * 4 + 3] = four.w;
  }
}

/// acc_s += q · kᵀ in true f32. Eight products are summed apart before they join: fewer roundings at the size of the
/// sum.
template <int kRowBytes, int kStepBytes, int kRowTiles, int kColTiles>
__forceinline__ void scores_f32(float (&acc_s)[kRowTiles][kColTiles][4], const char* s_q, const char* s_k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const char* q = s_q + lane / 4 * kRowBytes;
  const char* k = s_k + lane % 4 * 2 * kRowBytes;
#pragma unroll 1
  for (int step = 0; step < kStepBytes / 32; ++step) {
    float rows[kRowTiles * 2][8];
#pragma unroll
    for (int r = 0; r < kRowTiles * 2; ++r) load_eight(rows[r], q + r * 8 * kRowBytes + step * 32);
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float key[8];
        load_eight(key, k + (n * 8 + c) * kRowBytes + step * 32);
#pragma unroll
        for (int r = 0; r < kRowTiles * 2; ++r) {
          float sum = rows[r][0] * key[0];
#pragma unroll
          for (int i = 1; i < 8; ++i) sum = fmaf(rows[r][i], key[i], sum);
          acc_s[r / 2][n][r % 2 * 2 + c] += sum;
        }
      }
  }
}

/// acc_o += p · v in true f32. The weights of a row are spread over the four lanes of a quad, which pass them around.
template <int kRowBytes, int kRowTiles, int kColTiles, int kValueTiles>
__forceinline__ void values_f32(float (&acc_o)[kRowTiles][kValueTiles][4], const float (&p)[kRowTiles][kColTiles][4],
                                const char* s_v) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const char* v = s_v + lane % 4 * 8;
#pragma unroll
  for (int step = 0; step < kColTiles; ++step) {
#pragma unroll 1
    for (int source = 0; source < 4; ++source) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float weight[kRowTiles * 2];
#pragma unroll
        for (int r = 0; r < kRowTiles * 2; ++r)
          weight[r] = __shfl_sync(0xFFFFFFFF, p[r / 2][step][r % 2 * 2 + c], lane / 4 * 4 + source);
        const char* row = v + (step * 8 + source * 2 + c) * kRowBytes;
#pragma unroll
        for (int n = 0; n < kValueTiles; ++n) {
          const float2 value = *reinterpret_cast<const float2*>(row + n * 32);
#pragma unroll
          for (int r = 0; r < kRowTiles * 2; ++r) {
            acc_o[r / 2][n][r % 2 * 2] = fmaf(weight[r], value.x, acc_o[r / 2][n][r % 2 * 2]);
            acc_o[r / 2][n][r % 2 * 2 + 1] = fmaf(weight[r], value.y, acc_o[r / 2][n][r % 2 * 2 + 1]);
          }
        }
      }
    }
  }
}

}  // namespace onchip::cuda
