// Parameters of the kernel that writes what a step of generation needs before it attends.
#pragma once

#include <cstdint>

#include "cuda/shared/element.hpp"
#include "cuda/shared/row_layout.hpp"

namespace onchip::cuda {

/// What the kernel is compiled for.
struct AppendConfig {
  Element q_type = Element::bf16;
  Element kv_type = Element::bf16;
  Element angle_type = Element::f32;
};

/// Scales of the cache: none, given ones to divide by, or one a token, which the kernel computes and writes.
enum class CacheScale : std::int32_t { none, given, token };

/// New rows of k or of v, and the cache they go to.
struct AppendTarget {
  const char* source;
  char* cache;
  char* scale;
  RowLayout source_layout, cache_layout, scale_layout;
  CacheScale scale_kind;
  std::int32_t size;  // D or Dv
};

struct AppendParams {
  const char* q;
  char* rotated_q;  // null: queries are not turned
  RowLayout q_layout, rotated_layout;
  AppendTarget k, v;
  const char* cos;  // null: no rotary embedding
  const char* sin;
  std::int64_t cos_row_bytes, sin_row_bytes;
  const std::int32_t* cu_seqlens_q;  // null: q and new keys are batched
  const std::int32_t* cu_seqlens_k;  // null: the cache is not packed
  const std::int32_t* seqused_k;
  const std::int32_t* page_table;  // null: not paged
  std::int32_t* lengths;           // seqused_k with the new keys; null where none are appended
  std::int64_t page_table_batch_stride, page_table_page_stride;  // elements
  std::int32_t page_size;
  std::int32_t batch, num_heads_q, num_heads_kv;
  std::int32_t seqlen_q;    // of every sequence; packed: all queries
  std::int32_t seqlen_new;  // new keys of every sequence; packed: as queries; 0: none
  std::int32_t capacity;    // keys that a sequence of the cache can hold, where it is not packed
  std::int32_t head_dim;
  std::int32_t half_rotary;  // R/2
  std::int32_t interleaved;
  std::int32_t top_left;
  // One warp a row: queries first, then new keys and values.
  std::int64_t query_rows, key_rows;
};

}  // namespace onchip::cuda
