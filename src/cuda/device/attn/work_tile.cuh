// What one CTA of the portable kernel works on, and where its rows of every tensor lie.
#pragma once

#include <cstdint>

#include "cuda/shared/portable_config.hpp"
#include "cuda/shared/portable_params.hpp"
#include "cuda/shared/split.hpp"
#include "cuda/shared/tile_scheduler.hpp"
#include "shared/mask_range.hpp"

namespace onchip::cuda {

struct WorkTile {
  std::int32_t batch;
  std::int32_t first_head;  // query head of tile row 0
  std::int32_t head_kv;
  std::int64_t begin_q;  // first row of the sequence in packed tensors, else 0
  std::int64_t begin_k;
  std::int32_t seqlen_q;
  std::int32_t first_row;  // tile row 0, among the sequence's seqlen_q · heads_per_tile rows
  std::int32_t num_rows;   // of them in this tile; 0 or less: nothing to do
  std::int32_t seqlen_k;
  std::int32_t shift;  // where query 0 stands among the keys
  std::int32_t split;
  std::int32_t begin_key;  // keys that some row of the tile sees, of this split, lie in [begin_key, end_key)
  std::int32_t end_key;
  std::int32_t begin_whole;  // all rows see all keys of [begin_whole, end_whole), as far as the window goes
  std::int32_t end_whole;

  __forceinline__ MaskRange mask(const PortableParams& p) const {
    return {seqlen_k, shift, p.window_left, p.window_right};
  }
};

/// A tile row's query and head.
template <PortableConfig kConfig>
struct RowOwner {
  std::int32_t query;
  std::int32_t head;

  __forceinline__ RowOwner(const WorkTile& tile, int row) {
    const std::int32_t m = tile.first_row + row;
    query = m / kConfig.heads_per_tile;
    head = tile.first_head + m % kConfig.heads_per_tile;
  }
};

/// Work tile `number` of the launch.
template <PortableConfig kConfig, typename Number>
__forceinline__ WorkTile work_tile(const PortableParams& p, Number number) {
  const std::int32_t columns = kConfig.packed_q ? p.head_tiles : p.head_tiles * p.batch;
  constexpr bool kSplit = kConfig.output == Output::partial;
  WorkTile tile;
  tile.split = kSplit ? static_cast<std::int32_t>(number % p.num_splits) : 0;
  const TileIndex index = tile_of(kSplit ? number / p.num_splits : number, p.m_blocks, columns, p.l2_group);
  std::int32_t m_block = index.m_block;
  tile.begin_q = 0;
  tile.seqlen_q = p.seqlen_q;
  if constexpr (kConfig.packed_q) {
    tile.batch = packed_sequence(p.cu_seqlens_q, p.batch, kConfig.heads_per_tile, kConfig.tile_m, m_block);
    tile.begin_q = p.cu_seqlens_q[tile.batch];
    tile.seqlen_q = p.cu_seqlens_q[tile.batch + 1] - static_cast<std::int32_t>(tile.begin_q);
    m_block -= static_cast<std::int32_t>(
        first_packed_block(tile.begin_q * kConfig.heads_per_tile, tile.batch, kConfig.tile_m));
    tile.first_head = index.column * kConfig.heads_per_tile;
  } else {
    tile.batch = index.column / p.head_tiles;
    tile.first_head = index.column % p.head_tiles * kConfig.heads_per_tile;
  }
  tile.head_kv = tile.first_head / p.heads_per_kv;
  tile.first_row = m_block * kConfig.tile_m;
  tile.num_rows = tile.seqlen_q * kConfig.heads_per_tile - tile.first_row;
  if (tile.num_rows > kConfig.tile_m) tile.num_rows = kConfig.tile_m;

  tile.begin_k = 0;
  tile.seqlen_k = p.seqlen_k;
  if constexpr (kConfig.packed_k) {
    tile.begin_k = p.cu_seqlens_k[tile.batch];
    tile.seqlen_k = p.cu_seqlens_k[tile.batch + 1] - static_cast<std::int32_t>(tile.begin_k);
  }
  if constexpr (kConfig.seqused_k) tile.seqlen_k = p.seqused_k[tile.batch];
  tile.shift = p.top_left ? 0 : tile.seqlen_k - tile.seqlen_q;
  const RowOwner<kConfig> first(tile, 0), last(tile, tile.num_rows - 1);
  KeyRange any = tile.mask(p).keys_of_any(first.query, last.query);
  if constexpr (kSplit) any = split_keys(any, tile.split, p.num_splits, p.split_size, kConfig.tile_n);
  const KeyRange all = tile.mask(p).keys_of_all(first.query, last.query);
  tile.begin_key = static_cast<std::int32_t>(any.begin);
  tile.end_key = static_cast<std::int32_t>(any.end);
  tile.begin_whole = static_cast<std::int32_t>(all.begin);
  tile.end_whole = static_cast<std::int32_t>(all.end);
  return tile;
}

/// Rows of q, o or lse in the order of the tile's rows.
template <PortableConfig kConfig>
struct QueryRows {
  const char* base;  // query 0 of the sequence, the tile's first head
  std::int64_t row_bytes;
  std::int64_t head_bytes;
  std::int32_t first_row;

  __forceinline__ QueryRows(const WorkTile& tile, const char* tensor, const RowLayout& layout)
      : base(tensor + layout.offset(tile.batch, tile.begin_q, tile.first_head)),
        row_bytes(layout.row_bytes),
        head_bytes(layout.head_bytes),
        first_row(tile.first_row) {}

  __forceinline__ const char* address(int row) const {
    const std::int32_t m = first_row + row;
    if constexpr (kConfig.heads_per_tile == 1) return base + m * row_bytes;
    return base + m / kConfig.heads_per_tile * row_bytes + m % kConfig.heads_per_tile * head_bytes;
  }
};

/// Rows of k, v or of scales per token; row 0 is key `first_key`.
template <bool kPaged>
struct KeyRows {
  const char* base;
  std::int64_t row_bytes;
  std::int64_t page_bytes;
  const std::int32_t* pages;
  std::int64_t page_stride;
  std::int32_t page_size;
  std::int32_t first_key = 0;

  __forceinline__ KeyRows(const WorkTile& tile, const PortableParams& p, const char* tensor, const RowLayout& layout)
      : base(tensor + layout.offset(kPaged ? 0 : tile.batch, tile.begin_k, tile.head_kv)),
        row_bytes(layout.row_bytes),
        page_bytes(layout.batch_bytes),
        pages(p.page_table + (kPaged ? tile.batch * p.page_table_batch_stride : 0)),
        page_stride(p.page_table_page_stride),
        page_size(p.page_size) {}

  __forceinline__ const char* address(int row) const {
    const std::int32_t key = first_key + row;
    if constexpr (!kPaged) return base + key * row_bytes;
    const auto page = static_cast<std::int32_t>(static_cast<std::uint32_t>(key) / page_size);
    return base + __ldg(pages + page * page_stride) * page_bytes + (key - page * page_size) * row_bytes;
  }

  /// Makes row 0 key `key`, from `column_bytes` on.
  __forceinline__ void skip(std::int32_t key, std::int64_t column_bytes) {
    first_key = key;
    base += column_bytes;
  }
};

}  // namespace onchip::cuda
