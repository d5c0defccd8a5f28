// Forward attention on any GPU from sm_80 on, with every feature of the contract.
//
//   s = scale·(q·kᵀ) (softcap, bias, ALiBi, masks);  p = exp2(s − running maximum);  o = Σ p·v / Σ p;  lse = ln Σ
//   exp(s)
//
// One CTA computes tile_m rows of one sequence and query head (or of all query heads of one KV head, when queries are
// few), over all keys that any of the rows sees, right to left in steps of tile_n. Every warp owns its rows: scores,
// weights and output stay in its registers, so warps meet only to hand over tiles in shared memory:
//
//   barrier          before it                                       after it
//   keys ready       copies of k of this step have arrived           copies of v may overwrite the last step's values
//   values ready     copies of v have arrived, k has been read       copies of the next step's k may begin
//
// so copies of v run under q·kᵀ and copies of the next k under softmax and p·v.
//
// Bytes from global memory: q once; k and v once a CTA (mostly from L2: CTAs of neighbouring row blocks run together);
// o and lse once. When v is wider than a CTA's registers hold, blockIdx.y walks its columns, and q·kᵀ is computed anew;
// when q and k are wider than shared memory holds, they pass through it in chunks, again for every step.
#include <cstdint>

#include "cuda/device/attn/epilogue.cuh"
#include "cuda/device/attn/not_finite.cuh"
#include "cuda/device/attn/online_softmax.cuh"
#include "cuda/device/attn/scores.cuh"
#include "cuda/device/attn/work_tile.cuh"
#include "cuda/device/tile/load_tile.cuh"
#include "cuda/device/tile/products.cuh"

namespace onchip::cuda {

template <PortableConfig kConfig>
class PortableForward {
 public:
  __forceinline__ PortableForward(const PortableParams& p, const WorkTile& tile, char* shared)
      : p_(p),
        tile_(tile),
        scores_(p, tile),
        s_q_(shared),
        s_k_(shared + kConfig.k_offset()),
        s_v_(shared + kConfig.v_offset()) {}

  __forceinline__ void run() {
    float acc_o[kRowTiles][kValueTiles][4] = {};
    Softmax softmax(scores_.exponent_factor());

    if (tile_.begin_key < tile_.end_key) {
      std::int32_t first_key = (tile_.end_key - 1) / kConfig.tile_n * kConfig.tile_n;
      if constexpr (kConfig.num_chunks() == 1) {
        load_q(0);
        load_k(first_key, 0);
        commit_copies();
      }
#pragma unroll 1
      for (; first_key + kConfig.tile_n > tile_.begin_key; first_key -= kConfig.tile_n) {
        const bool whole = first_key >= tile_.begin_whole && first_key + kConfig.tile_n <= tile_.end_whole;
        if (whole && !kConfig.mask)
          step<false>(first_key, softmax, acc_o);
        else
          step<true>(first_key, softmax, acc_o);
      }
    }
    finish(softmax, acc_o);
  }

 private:
  static constexpr int kRowTiles = Scores<kConfig>::kRowTiles;
  static constexpr int kValueTiles = kConfig.padded_head_dim_v() / 8;
  static constexpr Element kCompute = kConfig.compute_type();
  // On an H200 lazy rescaling gains 6 % up to 128 columns of o and loses 3 % at 256 (2026-11-29).
  using Softmax = OnlineSoftmax<kRowTiles, kConfig.padded_head_dim_v() <= 128>;
  using QTile = TileShape<kCompute, kConfig.tile_m, kConfig.head_dim_chunk, kConfig.qk_row_bytes(), kConfig.threads()>;
  using KTile = TileShape<kCompute, kConfig.tile_n, kConfig.head_dim_chunk, kConfig.qk_row_bytes(), kConfig.threads()>;
  using VTile =
      TileShape<kCompute, kConfig.tile_n, kConfig.padded_head_dim_v(), kConfig.v_row_bytes(), kConfig.threads()>;

  /// One tile of keys: scores, weights, values. On entry its k (unless streamed) has been asked for.
  template <bool kMasked>
  __forceinline__ void step(std::int32_t first_key, Softmax& softmax, float (&acc_o)[kRowTiles][kValueTiles][4]) {
    typename Scores<kConfig>::Accumulator acc_s = {};
    wait_copies<0>();
    __syncthreads();  // keys ready
    load_v(first_key);
    commit_copies();
    if constexpr (kConfig.num_chunks() == 1)
      multiply_qk(acc_s);
    else
      stream_qk(acc_s, first_key);
    wait_copies<0>();
    __syncthreads();  // values ready
    if (kConfig.num_chunks() == 1 && first_key > tile_.begin_key) {
      load_k(first_key - kConfig.tile_n, 0);
      commit_copies();
    }
    scores_.template finish<kMasked>(acc_s, first_key);
    softmax.step(acc_s, acc_o);
    if constexpr (kConfig.v_token_scale) scale_weights(acc_s, first_key);
    if constexpr (kConfig.math == Math::bf16 || kConfig.math == Math::f16) {
      std::uint32_t weights[kRowTiles][Scores<kConfig>::kColTiles][2];
      pack_weights<kCompute>(weights, acc_s);
      isolate_not_finite<kMasked>(acc_o, first_key);
      values_mma16<kConfig.math, kConfig.v_row_bytes()>(acc_o, weights, s_v_);
    } else {
      isolate_not_finite<kMasked>(acc_o, first_key);
      if constexpr (kConfig.math == Math::tf32)
        values_tf32<kConfig.v_row_bytes()>(acc_o, acc_s, s_v_);
      else
        values_f32<kConfig.v_row_bytes()>(acc_o, acc_s, s_v_);
    }
  }

  template <bool kMasked>
  __forceinline__ void isolate_not_finite(float (&acc_o)[kRowTiles][kValueTiles][4], std::int32_t first_key) {
    if constexpr (kMasked && (kConfig.bounded || kConfig.mask))
      if (NotFinite<kConfig>::found(s_v_)) NotFinite<kConfig>::add_and_clear(acc_o, s_v_, scores_, first_key);
  }

  /// q·kᵀ of one step where only a chunk of the head dimension fits into shared memory.
  __forceinline__ void stream_qk(typename Scores<kConfig>::Accumulator& acc_s, std::int32_t first_key) {
#pragma unroll 1
    for (int chunk = 0; chunk < kConfig.num_chunks(); ++chunk) {
      load_q(chunk);
      load_k(first_key, chunk);
      commit_copies();
      wait_copies<0>();
      __syncthreads();  // the chunk is there
      multiply_qk(acc_s);
      __syncthreads();  // and has been read
    }
  }

  __forceinline__ void load_q(int chunk) {
    QueryRows<kConfig> rows(tile_, p_.q, p_.q_layout);
    rows.base += static_cast<std::int64_t>(chunk) * kConfig.head_dim_chunk * element_bytes(kConfig.q_type);
    load_tile<QTile, kConfig.q_type, kConfig.q_copy_bytes>(s_q_, rows, tile_.num_rows, chunk_columns(chunk));
  }

  __forceinline__ void load_k(std::int32_t first_key, int chunk) {
    KeyRows<kConfig.paged> rows(tile_, p_, p_.k, p_.k_layout);
    rows.skip(first_key, static_cast<std::int64_t>(chunk) * kConfig.head_dim_chunk * element_bytes(kConfig.kv_type));
    load_tile<KTile, kConfig.kv_type, kConfig.k_copy_bytes>(s_k_, rows, tile_.seqlen_k - first_key,
                                                            chunk_columns(chunk));
  }

  __forceinline__ void load_v(std::int32_t first_key) {
    KeyRows<kConfig.paged> rows(tile_, p_, p_.v, p_.v_layout);
    rows.skip(first_key, static_cast<std::int64_t>(first_column()) * element_bytes(kConfig.kv_type));
    load_tile<VTile, kConfig.kv_type, kConfig.v_copy_bytes>(s_v_, rows, tile_.seqlen_k - first_key, num_columns());
  }

  static __forceinline__ int chunk_columns(int chunk) { return kConfig.head_dim - chunk * kConfig.head_dim_chunk; }

  /// The columns of v and o that this CTA computes.
  static __forceinline__ int first_column() { return static_cast<int>(blockIdx.y) * kConfig.head_dim_v; }
  __forceinline__ int num_columns() const {
    const int left = p_.head_dim_v - first_column();
    return left < kConfig.head_dim_v ? left : kConfig.head_dim_v;
  }

  __forceinline__ void multiply_qk(typename Scores<kConfig>::Accumulator& acc_s) {
    constexpr int kRowBytes = kConfig.qk_row_bytes();
    constexpr int kStepBytes = kRowBytes - 16;
    const char* q = s_q_ + static_cast<int>(threadIdx.x) / 32 * kConfig.rows_per_warp() * kRowBytes;
    if constexpr (kConfig.math == Math::f32)
      scores_f32<kRowBytes, kStepBytes>(acc_s, q, s_k_);
    else
      scores_mma<kConfig.math, kRowBytes, kStepBytes>(acc_s, q, s_k_);
  }

  /// Weights times the scales of their values. A hidden key's scale may be anything.
  __forceinline__ void scale_weights(typename Scores<kConfig>::Accumulator& p, std::int32_t first_key) {
    const KeyRows<kConfig.paged> scales(tile_, p_, p_.v_scale, p_.v_scale_layout);
    const int thread = fresh_thread_index();
#pragma unroll
    for (int n = 0; n < Scores<kConfig>::kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const std::int32_t key = first_key + Scores<kConfig>::tile_column(thread, n, c);
        float scale = 0.0f;
        if (key < tile_.seqlen_k) scale = *reinterpret_cast<const float*>(scales.address(key));
#pragma unroll
        for (int r = 0; r < Scores<kConfig>::kRows; ++r) {
          float& weight = p[r / 2][n][r % 2 * 2 + c];
          weight = weight == 0.0f ? 0.0f : weight * scale;
        }
      }
  }

  __forceinline__ void finish(Softmax& softmax, float (&acc_o)[kRowTiles][kValueTiles][4]) {
    float v_scale = 1.0f;
    if (!kConfig.v_token_scale && p_.v_scale != nullptr)
      v_scale = *reinterpret_cast<const float*>(p_.v_scale + p_.v_scale_layout.offset(tile_.batch, 0, tile_.head_kv));
    const QueryRows<kConfig> lse_rows(tile_, p_.lse, p_.lse_layout);
    float factor[Scores<kConfig>::kRows];
    const int thread = fresh_thread_index();
#pragma unroll
    for (int r = 0; r < Scores<kConfig>::kRows; ++r) {
      const int row = Scores<kConfig>::tile_row(thread, r);
      float sink = -kInfinity;
      if (p_.sink != nullptr)
        sink = kLog2E * *reinterpret_cast<const float*>(
                            p_.sink + p_.sink_layout.offset(0, 0, RowOwner<kConfig>(tile_, row).head));
      float lse;
      factor[r] = softmax.close(r, sink, lse);
      if (factor[r] != 0.0f) factor[r] *= v_scale;
      if (p_.lse != nullptr && row < tile_.num_rows && thread % 4 == 0 && blockIdx.y == 0)
        *reinterpret_cast<float*>(const_cast<char*>(lse_rows.address(row))) = lse;
    }
    __syncthreads();  // the tiles of q, k and v are no longer needed
    stage_output<kConfig>(s_q_, acc_o, factor);
    __syncthreads();
    QueryRows<kConfig> o_rows(tile_, p_.o, p_.o_layout);
    o_rows.base += static_cast<std::int64_t>(first_column()) * element_bytes(kConfig.o_type);
    store_output<kConfig>(s_q_, o_rows, tile_.num_rows, num_columns());
  }

  const PortableParams& p_;
  const WorkTile& tile_;
  const Scores<kConfig> scores_;
  char* s_q_;
  char* s_k_;
  char* s_v_;
};

constexpr PortableConfig kKernelConfig = ONCHIP_PORTABLE_CONFIG;

extern "C" __global__ void __launch_bounds__(kKernelConfig.threads(), kKernelConfig.ctas_per_sm)
    ONCHIP_KERNEL_NAME(const __grid_constant__ PortableParams params) {
  extern __shared__ __align__(16) char shared[];
  // In shared memory, so that it takes no registers in the loop.
  __shared__ WorkTile tile;
  if (threadIdx.x == 0) tile = work_tile<kKernelConfig>(params);
  __syncthreads();
  if (tile.num_rows > 0) PortableForward<kKernelConfig>(params, tile, shared).run();
}

}  // namespace onchip::cuda
