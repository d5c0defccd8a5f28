// What a step of generation writes before it attends: queries turned by their positions' angles, new keys (turned) and
// values behind those in the cache, quantised as the cache is, and the lengths with them.
//
// One warp a row of D or Dv elements: a query of a head, a new key or a new value. Rows are computed in f32 and rounded
// once. Bytes: each new row read once (twice where its scale is computed, mostly from L1) and written once.
#include <cstdint>

#include "cuda/device/tile/element_conversion.cuh"
#include "cuda/shared/append_params.hpp"

namespace onchip::cuda {

constexpr AppendConfig kConfig = ONCHIP_APPEND_CONFIG;
constexpr int kWarps = 4;

/// A query or a new key: number `index` of its sequence.
struct Token {
  std::int32_t batch, index;
  std::int64_t row;       // in packed tensors, else `index`
  std::int32_t seqlen_q;  // of the sequence
};

/// Number `token` of all queries, or of all new keys, `per_sequence` a sequence unless packed.
__forceinline__ Token find_token(const AppendParams& p, std::int64_t token, std::int32_t per_sequence) {
  if (p.cu_seqlens_q == nullptr) {
    const auto index = static_cast<std::int32_t>(token % per_sequence);
    return {static_cast<std::int32_t>(token / per_sequence), index, index, p.seqlen_q};
  }
  std::int32_t low = 0, high = p.batch;  // the last sequence that begins at or before the token is in [low, high)
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (p.cu_seqlens_q[middle] <= token)
      low = middle;
    else
      high = middle;
  }
  const std::int32_t begin = p.cu_seqlens_q[low];
  return {low, static_cast<std::int32_t>(token) - begin, token, p.cu_seqlens_q[low + 1] - begin};
}

__forceinline__ std::int32_t new_keys(const AppendParams& p, std::int32_t seqlen_q) {
  if (p.seqlen_new == 0) return 0;
  return p.cu_seqlens_q == nullptr ? p.seqlen_new : seqlen_q;
}

/// One row, element by element; where `position` ≥ 0, turned by its angles.
class Row {
 public:
  __forceinline__ Row(const AppendParams& p, const char* row, std::int64_t position)
      : row_(row),
        half_(position < 0 ? 0 : p.half_rotary),
        interleaved_(p.interleaved),
        cos_(p.cos + position * p.cos_row_bytes),
        sin_(p.sin + position * p.sin_row_bytes) {}

  __forceinline__ float operator[](int d) const {
    if (d >= 2 * half_) return load_element<kConfig.q_type>(row_, d);
    const int c = interleaved_ ? d / 2 : d % half_;
    const bool second = interleaved_ ? d % 2 : d >= half_;
    const float x = load_element<kConfig.q_type>(row_, interleaved_ ? 2 * c : c);
    const float y = load_element<kConfig.q_type>(row_, interleaved_ ? 2 * c + 1 : c + half_);
    const float cos = load_element<kConfig.angle_type>(cos_, c), sin = load_element<kConfig.angle_type>(sin_, c);
    return second ? x * sin + y * cos : x * cos - y * sin;
  }

 private:
  const char* row_;
  int half_;
  bool interleaved_;
  const char* cos_;
  const char* sin_;
};

__forceinline__ void rotate_query(const AppendParams& p, std::int64_t number, int lane) {
  const auto head = static_cast<std::int32_t>(number % p.num_heads_q);
  const Token token = find_token(p, number / p.num_heads_q, p.seqlen_q);
  const std::int32_t keys = p.seqused_k[token.batch] + new_keys(p, token.seqlen_q);
  const std::int32_t position = token.index + (p.top_left ? 0 : keys - token.seqlen_q);
  const Row row(p, p.q + p.q_layout.offset(token.batch, token.row, head), position < 0 ? 0 : position);
  char* target = p.rotated_q + p.rotated_layout.offset(token.batch, token.row, head);
  for (int d = lane; d < p.head_dim; d += 32) store_element<kConfig.q_type>(target, d, row[d]);
}

/// Where key j of a sequence lies, in a cache or in scales that are laid out alike.
__forceinline__ std::int64_t cache_offset(const AppendParams& p, const RowLayout& layout, std::int32_t batch,
                                          std::int32_t j, std::int32_t head) {
  if (p.page_table == nullptr)
    return layout.offset(batch, (p.cu_seqlens_k == nullptr ? 0 : p.cu_seqlens_k[batch]) + static_cast<std::int64_t>(j),
                         head);
  const std::int32_t page =
      p.page_table[batch * p.page_table_batch_stride + j / p.page_size * p.page_table_page_stride];
  return layout.offset(page, j % p.page_size, head);
}

/// The scale with which the row uses its type's whole range: 1 for zeros, NaN where an element is not finite.
__forceinline__ float token_scale(const Row& row, int size, int lane) {
  float largest = 0;
  bool nan = false;
  for (int d = lane; d < size; d += 32) {
    largest = fmaxf(largest, fabsf(row[d]));
    nan = nan || !(fabsf(row[d]) < kInfinity);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, lanes));
  if (__any_sync(0xFFFFFFFF, nan)) return bits_float(0x7FC00000);
  const float scale = __fdiv_rn(largest, largest_value(kConfig.kv_type));
  return scale == 0.0f ? 1.0f : scale;
}

__forceinline__ void append_row(const AppendParams& p, const AppendTarget& to, bool turned, std::int64_t number,
                                int lane) {
  const auto head = static_cast<std::int32_t>(number % p.num_heads_kv);
  const Token token = find_token(p, number / p.num_heads_kv, p.seqlen_new);
  const std::int32_t j = p.seqused_k[token.batch] + token.index;
  if (p.cu_seqlens_k == nullptr && j >= p.capacity) return;
  const Row row(p, to.source + to.source_layout.offset(token.batch, token.row, head),
                turned && p.cos != nullptr ? j : -1);
  float scale = 1.0f;
  if (to.scale_kind == CacheScale::token) {
    scale = token_scale(row, to.size, lane);
    if (lane == 0) *reinterpret_cast<float*>(to.scale + cache_offset(p, to.scale_layout, token.batch, j, head)) = scale;
  } else if (to.scale_kind == CacheScale::given) {
    scale = *reinterpret_cast<const float*>(to.scale + to.scale_layout.offset(token.batch, 0, head));
  }
  char* target = to.cache + cache_offset(p, to.cache_layout, token.batch, j, head);
  for (int d = lane; d < to.size; d += 32)
    store_element<kConfig.kv_type>(target, d, to.scale_kind == CacheScale::none ? row[d] : __fdiv_rn(row[d], scale));
}

/// Every thread some of the sequences.
__forceinline__ void write_lengths(const AppendParams& p) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kWarps * 32;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kWarps * 32 + threadIdx.x; b < p.batch; b += threads) {
    const std::int32_t seqlen_q = p.cu_seqlens_q == nullptr ? p.seqlen_q : p.cu_seqlens_q[b + 1] - p.cu_seqlens_q[b];
    const std::int32_t length = p.seqused_k[b] + new_keys(p, seqlen_q);
    p.lengths[b] = p.cu_seqlens_k == nullptr && length > p.capacity ? p.capacity : length;
  }
}

extern "C" __global__ void __launch_bounds__(kWarps * 32) ONCHIP_KERNEL_NAME(const __grid_constant__ AppendParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (p.lengths != nullptr) write_lengths(p);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row < p.query_rows)
    rotate_query(p, row, lane);
  else if (row < p.query_rows + p.key_rows)
    append_row(p, p.k, true, row - p.query_rows, lane);
  else if (row < p.query_rows + 2 * p.key_rows)
    append_row(p, p.v, false, row - p.query_rows - p.key_rows, lane);
}

}  // namespace onchip::cuda
