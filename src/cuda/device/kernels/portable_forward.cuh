// Forward attention on any GPU from sm_80 on, with every feature of the contract.
//
//   s = scale·(q·kᵀ) (softcap, bias, ALiBi, masks);  p = exp2(s − running maximum);  o = Σ p·v / Σ p;  lse = ln Σ
//   exp(s)
//
// One CTA computes tile_m rows of one sequence and query head (or of several query heads of one KV head, when queries
// are few), over all keys that any of the rows sees, or one split of them, right to left in steps of tile_n. Every warp
// owns its rows: scores, weights and output stay in its registers, so warps meet only to hand over tiles in shared
// memory. When rows are so few that one warp holds them all, key_warps warps share them: each takes its part of every
// step's keys, and they merge at the end.
//
// Many rows, num_stages 1:
//
//   barrier          before it                                       after it
//   keys ready       copies of k of this step have arrived           copies of v may overwrite the last step's values
//   values ready     copies of v have arrived, k has been read       copies of the next step's k may begin
//
// so copies of v run under q·kᵀ and copies of the next k under softmax and p·v. Few rows are bound by memory: k and v
// of num_stages − 1 steps are on their way at any time, in a ring with one barrier a step, before which the step's
// copies have arrived and after which the last step's place is filled anew. Where elements of 8 bits are converted in
// shared memory, one barrier more follows each conversion.
//
// Bytes from global memory: q once; k and v once a CTA (mostly from L2: CTAs of neighbouring row blocks run together);
// o and lse once, or their f32 parts once a split. When v is wider than a CTA's registers hold, blockIdx.y walks its
// columns, and q·kᵀ is computed anew; when q and k are wider than shared memory holds, they pass through it in chunks,
// again for every step.
#include <cstdint>

#include "cuda/device/attn/epilogue.cuh"
#include "cuda/device/attn/merge_warps.cuh"
#include "cuda/device/attn/not_finite.cuh"
#include "cuda/device/attn/online_softmax.cuh"
#include "cuda/device/attn/scores.cuh"
#include "cuda/device/attn/work_tile.cuh"
#include "cuda/device/ptx/dependent_launch.cuh"
#include "cuda/device/tile/load_tile.cuh"
#include "cuda/device/tile/products.cuh"

namespace onchip::cuda {

template <PortableConfig kConfig>
class PortableForward {
 public:
  __forceinline__ PortableForward(const PortableParams& p, const WorkTile& tile, char* shared)
      : p_(p), tile_(tile), scores_(p, tile), shared_(shared) {}

  __forceinline__ void run() {
    float acc_o[kRowTiles][kValueTiles][4] = {};
    Softmax softmax(scores_.exponent_factor());
    if (tile_.begin_key < tile_.end_key) {
      if constexpr (kConfig.num_stages > 1)
        run_ahead(softmax, acc_o);
      else
        run_in_turns(softmax, acc_o);
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
  // What arrives in a stage.
  static constexpr Element kArriving = kConfig.converts_in_shared() ? kConfig.kv_type : kCompute;
  using ArrivingK =
      TileShape<kArriving, kConfig.tile_n, kConfig.head_dim_chunk, kConfig.stored_k_row_bytes(), kConfig.threads()>;
  using ArrivingV = TileShape<kArriving, kConfig.tile_n, kConfig.padded_head_dim_v(), kConfig.stored_v_row_bytes(),
                              kConfig.threads()>;
  using Accumulator = typename Scores<kConfig>::Accumulator;
  using Values = float[kRowTiles][kValueTiles][4];

  /// Steps over the keys with k and v in turns.
  __forceinline__ void run_in_turns(Softmax& softmax, Values& acc_o) {
    std::int32_t first_key = (tile_.end_key - 1) / kConfig.tile_n * kConfig.tile_n;
    if constexpr (kConfig.num_chunks() == 1) {
      load_q(0);
      load_k(first_key, 0, 0);
      commit_copies();
    }
#pragma unroll 1
    for (; first_key + kConfig.tile_n > tile_.begin_key; first_key -= kConfig.tile_n)
      if (sees_all(first_key))
        step_in_turns<false>(first_key, softmax, acc_o);
      else
        step_in_turns<true>(first_key, softmax, acc_o);
  }

  /// Whole copies for masked and unmasked steps: the compiler mixes instructions of loads, products and softmax.
  template <bool kMasked>
  __forceinline__ void step_in_turns(std::int32_t first_key, Softmax& softmax, Values& acc_o) {
    Accumulator acc_s = {};
    wait_copies<0>();
    __syncthreads();  // keys ready
    convert_k(0);
    load_v(first_key, 0);
    commit_copies();
    if constexpr (kConfig.converts_in_shared()) __syncthreads();  // keys converted
    if constexpr (kConfig.num_chunks() == 1)
      multiply_qk(acc_s, keys(0));
    else
      stream_qk(acc_s, first_key);
    wait_copies<0>();
    __syncthreads();  // values ready
    if (kConfig.num_chunks() == 1 && first_key > tile_.begin_key) {
      load_k(first_key - kConfig.tile_n, 0, 0);
      commit_copies();
    }
    convert_v(0);
    if constexpr (kConfig.converts_in_shared()) __syncthreads();  // values converted
    weigh<kMasked>(acc_s, first_key, values(0), softmax, acc_o);
  }

  /// Steps over the keys with num_stages − 1 steps on their way.
  __forceinline__ void run_ahead(Softmax& softmax, Values& acc_o) {
    const std::int32_t last = (tile_.end_key - 1) / kConfig.tile_n;
    const std::int32_t steps = last - tile_.begin_key / kConfig.tile_n + 1;
    const auto load_step = [&](std::int32_t step, int stage) {
      if (step < steps) {
        load_k((last - step) * kConfig.tile_n, 0, stage);
        load_v((last - step) * kConfig.tile_n, stage);
      }
      commit_copies();
    };
    load_q(0);
#pragma unroll
    for (int stage = 0; stage < kConfig.num_stages - 1; ++stage) load_step(stage, stage);
    int stage = 0, free_stage = kConfig.num_stages - 1;
#pragma unroll 1
    for (std::int32_t step = 0; step < steps; ++step) {
      wait_copies<kConfig.num_stages - 2>();
      __syncthreads();  // the step's keys and values ready, the last step's read
      load_step(step + kConfig.num_stages - 1, free_stage);
      convert_k(stage);
      convert_v(stage);
      if constexpr (kConfig.converts_in_shared()) __syncthreads();  // converted
      Accumulator acc_s = {};
      multiply_qk(acc_s, keys(stage));
      const std::int32_t first_key = (last - step) * kConfig.tile_n;
      if (sees_all(first_key))
        weigh<false>(acc_s, first_key, values(stage), softmax, acc_o);
      else
        weigh<true>(acc_s, first_key, values(stage), softmax, acc_o);
      free_stage = stage;
      stage = stage + 1 == kConfig.num_stages ? 0 : stage + 1;
    }
    wait_copies<0>();
  }

  /// Whether all rows see all keys of the step.
  __forceinline__ bool sees_all(std::int32_t first_key) const {
    return !kConfig.mask && first_key >= tile_.begin_whole && first_key + kConfig.tile_n <= tile_.end_whole;
  }

  /// Products of a step become weights, and its values are added.
  template <bool kMasked>
  __forceinline__ void weigh(Accumulator& acc_s, std::int32_t first_key, char* s_v, Softmax& softmax, Values& acc_o) {
    scores_.template finish<kMasked>(acc_s, first_key);
    softmax.step(acc_s, acc_o);
    if constexpr (kConfig.v_token_scale) scale_weights(acc_s, first_key);
    if constexpr (kKeepsInRange) keep_in_range(acc_s, acc_o);
    const char* s_own = s_v + Scores<kConfig>::first_warp_key(static_cast<int>(threadIdx.x)) * kConfig.v_row_bytes();
    if constexpr (kConfig.math == Math::bf16 || kConfig.math == Math::f16) {
      std::uint32_t weights[kRowTiles][Scores<kConfig>::kColTiles][2];
      pack_weights<kCompute>(weights, acc_s);
      isolate_not_finite<kMasked>(acc_o, first_key, s_v);
      values_mma16<kConfig.math, kConfig.v_row_bytes()>(acc_o, weights, s_own);
    } else {
      isolate_not_finite<kMasked>(acc_o, first_key, s_v);
      if constexpr (kConfig.math == Math::tf32)
        values_tf32<kConfig.v_row_bytes()>(acc_o, acc_s, s_own);
      else
        values_f32<kConfig.v_row_bytes()>(acc_o, acc_s, s_own);
    }
  }

  template <bool kMasked>
  __forceinline__ void isolate_not_finite(Values& acc_o, std::int32_t first_key, char* s_v) {
    if constexpr (kMasked && (kConfig.bounded || kConfig.mask))
      if (NotFinite<kConfig>::found(s_v)) NotFinite<kConfig>::add_and_clear(acc_o, s_v, scores_, first_key);
  }

  /// q·kᵀ of one step where only a chunk of the head dimension fits into shared memory.
  __forceinline__ void stream_qk(Accumulator& acc_s, std::int32_t first_key) {
#pragma unroll 1
    for (int chunk = 0; chunk < kConfig.num_chunks(); ++chunk) {
      load_q(chunk);
      load_k(first_key, chunk, 0);
      commit_copies();
      wait_copies<0>();
      __syncthreads();  // the chunk is there
      multiply_qk(acc_s, keys(0));
      __syncthreads();  // and has been read
    }
  }

  __forceinline__ void load_q(int chunk) {
    QueryRows<kConfig> rows(tile_, p_.q, p_.q_layout);
    rows.base += static_cast<std::int64_t>(chunk) * kConfig.head_dim_chunk * element_bytes(kConfig.q_type);
    load_tile<QTile, kConfig.q_type, kConfig.q_copy_bytes>(shared_, rows, tile_.num_rows, chunk_columns(chunk));
  }

  __forceinline__ void load_k(std::int32_t first_key, int chunk, int stage) {
    KeyRows<kConfig.paged> rows(tile_, p_, p_.k, p_.k_layout);
    rows.skip(first_key, static_cast<std::int64_t>(chunk) * kConfig.head_dim_chunk * element_bytes(kConfig.kv_type));
    load_tile<ArrivingK, kConfig.kv_type, kConfig.k_copy_bytes>(shared_ + kConfig.stage_k_offset(stage), rows,
                                                                tile_.seqlen_k - first_key, chunk_columns(chunk));
  }

  __forceinline__ void load_v(std::int32_t first_key, int stage) {
    KeyRows<kConfig.paged> rows(tile_, p_, p_.v, p_.v_layout);
    rows.skip(first_key, static_cast<std::int64_t>(first_column()) * element_bytes(kConfig.kv_type));
    load_tile<ArrivingV, kConfig.kv_type, kConfig.v_copy_bytes>(shared_ + kConfig.stage_v_offset(stage), rows,
                                                                tile_.seqlen_k - first_key, num_columns());
  }

  __forceinline__ void convert_k(int stage) {
    if constexpr (kConfig.converts_in_shared())
      convert_tile<ArrivingK, KTile>(keys(stage), shared_ + kConfig.stage_k_offset(stage));
  }
  __forceinline__ void convert_v(int stage) {
    if constexpr (kConfig.converts_in_shared())
      convert_tile<ArrivingV, VTile>(values(stage), shared_ + kConfig.stage_v_offset(stage));
  }

  /// k and v of a step as the products read them.
  __forceinline__ char* keys(int stage) const {
    return shared_ + (kConfig.converts_in_shared() ? kConfig.k_offset() : kConfig.stage_k_offset(stage));
  }
  __forceinline__ char* values(int stage) const {
    return shared_ + (kConfig.converts_in_shared() ? kConfig.v_offset() : kConfig.stage_v_offset(stage));
  }

  static __forceinline__ int chunk_columns(int chunk) { return kConfig.head_dim - chunk * kConfig.head_dim_chunk; }

  /// The columns of v and o that this CTA computes.
  static __forceinline__ int first_column() { return static_cast<int>(blockIdx.y) * kConfig.head_dim_v; }
  __forceinline__ int num_columns() const {
    const int left = p_.head_dim_v - first_column();
    return left < kConfig.head_dim_v ? left : kConfig.head_dim_v;
  }

  __forceinline__ void multiply_qk(Accumulator& acc_s, const char* s_k) {
    constexpr int kRowBytes = kConfig.qk_row_bytes();
    constexpr int kStepBytes = kRowBytes - 16;
    const int thread = static_cast<int>(threadIdx.x);
    const char* q = shared_ + thread / 32 / kConfig.key_warps * kConfig.rows_per_warp() * kRowBytes;
    const char* k = s_k + Scores<kConfig>::first_warp_key(thread) * kRowBytes;
    if constexpr (kConfig.math == Math::f32)
      scores_f32<kRowBytes, kStepBytes>(acc_s, q, k);
    else
      scores_mma<kConfig.math, kRowBytes, kStepBytes>(acc_s, q, k);
  }

  /// Weights times the scales of their values. A hidden key's scale may be anything.
  __forceinline__ void scale_weights(Accumulator& p, std::int32_t first_key) {
    const KeyRows<kConfig.paged> scales(tile_, p_, p_.v_scale, p_.v_scale_layout);
    const int thread = fresh_thread_index();
#pragma unroll
    for (int n = 0; n < Scores<kConfig>::kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const std::int32_t key = first_key + Scores<kConfig>::tile_key(thread, n, c);
        float scale = 0.0f;
        if (key < tile_.seqlen_k) scale = *reinterpret_cast<const float*>(scales.address(key));
#pragma unroll
        for (int r = 0; r < Scores<kConfig>::kRows; ++r) {
          float& weight = p[r / 2][n][r % 2 * 2 + c];
          weight = weight == 0.0f ? 0.0f : weight * scale;
        }
      }
  }

  /// Scaled weights may be too small for f16, which the largest of them so far then becomes the unit of: a power of
  /// two.
  __forceinline__ void keep_in_range(Accumulator& p, Values& acc_o) {
    float largest = 0.0f;
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll
      for (int n = 0; n < Scores<kConfig>::kColTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (fabsf(p[mt][n][e]) < kInfinity) largest = fmaxf(largest, fabsf(p[mt][n][e]));
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, lanes));
    const int exponent = static_cast<int>(float_bits(largest) >> 23);
    if (exponent > value_exponent_) {
      scale_values(acc_o, exp2_approx(static_cast<float>(value_exponent_ - exponent)));
      value_exponent_ = exponent;
    }
    const float to_unit = exp2_approx(static_cast<float>(kExponentBias - value_exponent_));
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll
      for (int n = 0; n < Scores<kConfig>::kColTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) p[mt][n][e] *= to_unit;
  }

  static __forceinline__ void scale_values(Values& acc_o, float factor) {
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc_o[mt][n][e] *= factor;
  }

  /// The last step's tiles are still being read by other warps when this begins.
  __forceinline__ void finish(Softmax& softmax, Values& acc_o) {
    if constexpr (kKeepsInRange) scale_values(acc_o, exp2_approx(static_cast<float>(value_exponent_ - kExponentBias)));
    RowState states[Scores<kConfig>::kRows];
    float factor[Scores<kConfig>::kRows];
#pragma unroll
    for (int r = 0; r < Scores<kConfig>::kRows; ++r) states[r] = softmax.state(r);
    __syncthreads();  // the tiles of q, k and v are no longer needed
    char* s_o = shared_ + kConfig.o_offset();
    if constexpr (kConfig.key_warps > 1) {
      MergeWarps<kConfig> merge(shared_);
      merge.exchange(acc_o, states);
      close_rows(states, factor);
      merge.stage(s_o, factor);
    } else {
      close_rows(states, factor);
      stage_output<kConfig>(s_o, acc_o, factor);
    }
    __syncthreads();
    QueryRows<kConfig> o_rows(tile_, p_.o, p_.o_layout);
    o_rows.base += static_cast<std::int64_t>(first_column()) * element_bytes(kConfig.o_type);
    if constexpr (kPartial) o_rows.base += tile_.split * p_.split_o_bytes;
    store_output<kConfig>(s_o, o_rows, tile_.num_rows, num_columns());
  }

  /// Writes the rows' lse or states, and says what their sums of values are to be multiplied by.
  __forceinline__ void close_rows(const RowState (&states)[Scores<kConfig>::kRows],
                                  float (&factor)[Scores<kConfig>::kRows]) const {
    float v_scale = 1.0f;
    if (!kConfig.v_token_scale && p_.v_scale != nullptr)
      v_scale = *reinterpret_cast<const float*>(p_.v_scale + p_.v_scale_layout.offset(tile_.batch, 0, tile_.head_kv));
    QueryRows<kConfig> lse_rows(tile_, p_.lse, p_.lse_layout);
    if constexpr (kPartial) lse_rows.base += tile_.split * p_.split_state_bytes;
    const int thread = fresh_thread_index();
#pragma unroll
    for (int r = 0; r < Scores<kConfig>::kRows; ++r) {
      const int row = Scores<kConfig>::tile_row(thread, r);
      const bool writes =
          row < tile_.num_rows && thread % 4 == 0 && thread / 32 % kConfig.key_warps == 0 && blockIdx.y == 0;
      char* target = const_cast<char*>(lse_rows.address(row));
      if constexpr (kPartial) {
        factor[r] = states[r].sum == 0.0f ? 0.0f : v_scale;
        if (writes) *reinterpret_cast<RowState*>(target) = states[r];
      } else {
        float sink = -kInfinity;
        if (p_.sink != nullptr)
          sink = kLog2E * *reinterpret_cast<const float*>(
                              p_.sink + p_.sink_layout.offset(0, 0, RowOwner<kConfig>(tile_, row).head));
        const ClosedRow closed = close_row(states[r], sink);
        factor[r] = closed.factor == 0.0f ? 0.0f : closed.factor * v_scale;
        if (p_.lse != nullptr && writes) *reinterpret_cast<float*>(target) = closed.lse;
      }
    }
  }

  static constexpr bool kPartial = kConfig.output == Output::partial;
  static constexpr bool kKeepsInRange = kConfig.v_token_scale && kConfig.math == Math::f16;
  static constexpr int kExponentBias = 127;

  const PortableParams& p_;
  const WorkTile& tile_;
  const Scores<kConfig> scores_;
  char* shared_;
  int value_exponent_ =
      0;  // acc_o counts in units of 2^(value_exponent_ − kExponentBias), where weights are kept in range
};

constexpr PortableConfig kKernelConfig = ONCHIP_PORTABLE_CONFIG;

extern "C" __global__ void __launch_bounds__(kKernelConfig.threads(), kKernelConfig.ctas_per_sm)
    ONCHIP_KERNEL_NAME(const __grid_constant__ PortableParams params) {
  extern __shared__ __align__(16) char shared[];
  // In shared memory, so that it takes no registers in the loop.
  __shared__ WorkTile tile;
  if constexpr (kKernelConfig.output == Output::partial) launch_dependents();  // the merging
  if (threadIdx.x == 0) tile = work_tile<kKernelConfig>(params, static_cast<std::int64_t>(blockIdx.x));
  __syncthreads();
  if (tile.num_rows > 0) PortableForward<kKernelConfig>(params, tile, shared).run();
}

}  // namespace onchip::cuda
