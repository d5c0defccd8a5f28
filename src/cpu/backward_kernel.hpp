// The tiled backward kernel: one tile of keys against all the query rows that see it. Compiled once for each SIMD
// target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/key_gradients.hpp"
#include "cpu/query_block.hpp"

namespace onchip::cpu {

/// What the preparation leaves of each query row, in packed order (row_order.hpp). A row with lse = −∞ has no key left:
/// its lse is +∞ here, which makes every probability 0.
template <typename T>
struct RowStatistics {
  T* lse_log2;       // lse·log2(e)
  T* lse_log2_rest;  // what rounding took off it
  T* delta;          // rowsum(dout ∘ o)
};

/// What all tiles of one call share.
template <typename T>
struct BackwardCall {
  const Problem& problem;
  TileConfig tile;
  RowStatistics<T> rows;
  const KeyGradient<T>& dk;
  const KeyGradient<T>& dv;
};

/// A tile of keys and where it adds to.
template <typename T>
struct KeyTile {
  Sequence sequence;
  std::int64_t kv_head;
  KeyRange keys;
  T* dq;     // packed rows of this sequence and head [rows][padded D], added to; null: not asked for
  T* dbias;  // [heads of dbias in the group][rows_of_dbias][padded tile_n], added to; null: not asked for
  std::int64_t rows_of_dbias;
};

/// Query rows that go through a tile together, and rows in one vector.
struct BackwardShape {
  std::int64_t vector_lanes;
  std::int64_t panel_lanes;
};
template <typename T>
BackwardShape backward_shape();

/// Scratch of one thread.
template <typename T>
std::size_t backward_scratch_bytes(const Problem& problem, const TileConfig& tile);

/// Hands the tile's rows of dk and dv over, and adds to its dq and dbias.
template <typename T>
void backward_tile(const BackwardCall<T>& call, const KeyTile<T>& tile, std::byte* scratch);

}  // namespace onchip::cpu
