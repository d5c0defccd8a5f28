// Parameters of one launch of the portable forward kernel.
#pragma once

#include <cstdint>

namespace onchip::cuda {

/// Where row `row` of head `head` of sequence `batch` lies (of page `batch` when paged). Strides are 0 where a
/// dimension is broadcast or, for batch, packed.
struct RowLayout {
  std::int64_t batch_bytes;
  std::int64_t row_bytes;
  std::int64_t head_bytes;

  constexpr std::int64_t offset(std::int64_t batch, std::int64_t row, std::int64_t head) const {
    return batch * batch_bytes + row * row_bytes + head * head_bytes;
  }
};

struct PortableParams {
  const char* q;
  const char* k;
  const char* v;
  char* o;
  char* lse;  // null: not wanted
  const char* bias;
  const char* mask;
  const char* alibi_slopes;
  const char* sink;     // null: none
  const char* k_scale;  // null: 1
  const char* v_scale;
  const std::int32_t* cu_seqlens_q;
  const std::int32_t* cu_seqlens_k;
  const std::int32_t* seqused_k;
  const std::int32_t* page_table;

  RowLayout q_layout, k_layout, v_layout, o_layout, lse_layout;
  RowLayout bias_layout, mask_layout, slope_layout, sink_layout;
  RowLayout k_scale_layout, v_scale_layout;
  std::int64_t page_table_batch_stride;  // elements
  std::int64_t page_table_page_stride;

  std::int64_t window_left, window_right;  // −1: no bound
  std::int32_t batch, num_heads_q, heads_per_kv;
  std::int32_t seqlen_q;  // of every sequence, when not packed
  std::int32_t seqlen_k;  // the keys that a sequence can hold, when not packed
  std::int32_t page_size;
  std::int32_t head_dim_v;
  std::int32_t top_left;             // alignment of the mask
  float scale_log2e, softcap_log2e;  // softmax_scale and softcap times log2 e: logits are exponents of 2

  // The work list: see tile_scheduler.hpp.
  std::int32_t m_blocks;    // of one sequence; packed: of all of them
  std::int32_t head_tiles;  // tiles along the heads
  std::int32_t l2_group;    // (sequence, head tile) pairs that run together
};

}  // namespace onchip::cuda
