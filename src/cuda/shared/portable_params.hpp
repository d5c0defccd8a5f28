// Parameters of one launch of the portable forward kernel.
#pragma once

#include <cstdint>

#include "cuda/shared/row_layout.hpp"

namespace onchip::cuda {

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

  // Splits of the keys: see split.hpp. o and lse are then of f32 and of RowState, for each split anew.
  std::int32_t num_splits;
  std::int32_t split_size;  // keys; 0: equal parts of what a tile sees
  std::int64_t split_o_bytes, split_state_bytes;
};

/// Parameters of the kernel that merges splits. Row t · heads + h of every part is query t (counted over all sequences)
/// of head h.
struct CombineParams {
  const char* partial_o;  // f32 [num_splits, rows, padded_head_dim_v]
  const char* states;     // RowState [num_splits, rows]
  const char* sink;       // null: none
  char* o;
  char* lse;  // null: not wanted
  RowLayout o_layout, lse_layout, sink_layout;
  std::int64_t rows;
  std::int64_t seqlen_q;  // of every sequence; packed: all queries
  std::int32_t num_heads;
  std::int32_t num_splits;
  std::int32_t head_dim_v;
  std::int32_t padded_head_dim_v;  // a multiple of 4
};

}  // namespace onchip::cuda
