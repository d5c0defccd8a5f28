// Which tile a CTA computes. Pure integer code for host and device.
#pragma once

#include <cstdint>

namespace onchip::cuda {

/// Row block and column (a column is one head tile, of one sequence unless packed) of CTA `index`.
struct TileIndex {
  std::int32_t m_block;
  std::int32_t column;
};

/// Columns are taken in groups whose keys and values fit in L2 together. Within a group the last row blocks come first:
/// under a causal mask they see most keys, and long tiles should not start last.
/// Index is any integer type that holds the number of tiles: narrow ones divide faster.
template <typename Index>
constexpr TileIndex tile_of(Index index, std::int32_t m_blocks, std::int32_t columns, std::int32_t l2_group) {
  if (l2_group > columns) l2_group = columns;
  const Index group_tiles = static_cast<Index>(l2_group) * static_cast<Index>(m_blocks);
  const auto group = static_cast<std::int32_t>(index / group_tiles);
  const Index within = index - static_cast<Index>(group) * group_tiles;
  const std::int32_t first = group * l2_group;
  const std::int32_t size = columns - first < l2_group ? columns - first : l2_group;
  const auto step = static_cast<std::int32_t>(within / static_cast<Index>(size));
  return {m_blocks - 1 - step,
          first + static_cast<std::int32_t>(within - static_cast<Index>(step) * static_cast<Index>(size))};
}

/// Packed sequences have their blocks in one list in which block number ⌊begin_b / tile_m⌋ + b is the first of sequence
/// b. That leaves room for ⌈length / tile_m⌉ blocks each, is known without a scan, and wastes at most one block a
/// sequence. `begin` counts tile rows.
constexpr std::int64_t first_packed_block(std::int64_t begin, std::int64_t sequence, std::int64_t tile_m) {
  return begin / tile_m + sequence;
}

/// The sequence that owns block `block` of the list; begins[b] · rows_per_query is the first tile row of sequence b.
template <typename Index>
constexpr std::int32_t packed_sequence(const Index* begins, std::int32_t batch, std::int64_t rows_per_query,
                                       std::int64_t tile_m, std::int64_t block) {
  std::int32_t low = 0, high = batch;  // the answer is in [low, high)
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (first_packed_block(begins[middle] * rows_per_query, middle, tile_m) <= block)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace onchip::cuda
