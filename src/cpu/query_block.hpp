// Which queries the lanes of a tile are.
//
// The G query heads that share a KV head share its tiles: rows are packed query by query, r = i·G + g, so that a block
// of rows spans few queries and its causal edge is narrow. Lanes past the last row repeat it; their results are dropped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/problem.hpp"
#include "core/views.hpp"
#include "core/workspace.hpp"

namespace onchip::cpu {

inline constexpr double kLog2E = 1.44269504088896340736;
inline constexpr double kLn2 = 0.69314718055994530942;

/// `rows` packed rows of one KV head, from `first_row` on.
struct QueryBlock {
  Sequence sequence;
  std::int64_t kv_head;
  std::int64_t heads_per_kv;
  std::int64_t first_row;
  std::int64_t rows;

  std::int64_t query(std::int64_t lane) const { return row(lane) / heads_per_kv; }
  std::int64_t head(std::int64_t lane) const { return kv_head * heads_per_kv + row(lane) % heads_per_kv; }
  std::int64_t first_query() const { return first_row / heads_per_kv; }
  std::int64_t last_query() const { return (first_row + rows - 1) / heads_per_kv; }

  /// Keys that at least one row, or every row, sees through causal mask and window.
  KeyRange keys_of_any() const { return sequence.mask.keys_of_any(first_query(), last_query()); }
  KeyRange keys_of_all() const { return sequence.mask.keys_of_all(first_query(), last_query()); }

 private:
  std::int64_t row(std::int64_t lane) const { return first_row + (lane < rows ? lane : rows - 1); }
};

/// What a score needs to know of its row: one entry for each lane.
template <typename T>
struct LaneTable {
  const std::byte** bias;   // the row's bias of key 0; null without bias
  const std::byte** mask;   // the row's mask byte of key 0; null without mask
  T* slope;                 // ALiBi slope · log2(e); null without ALiBi
  std::int64_t* position;   // where the query stands among the keys
  std::int64_t* key_begin;  // keys the row sees through causal mask and window
  std::int64_t* key_end;

  static std::size_t bytes(std::size_t lanes) {
    return 2 * aligned_bytes<const std::byte*>(lanes) + aligned_bytes<T>(lanes) + 3 * aligned_bytes<std::int64_t>(lanes);
  }

  LaneTable(const Problem& problem, WorkspaceCursor& cursor, std::size_t lanes)
      : bias(cursor.take<const std::byte*>(lanes)),
        mask(cursor.take<const std::byte*>(lanes)),
        slope(cursor.take<T>(lanes)),
        position(cursor.take<std::int64_t>(lanes)),
        key_begin(cursor.take<std::int64_t>(lanes)),
        key_end(cursor.take<std::int64_t>(lanes)) {
    if (!problem.args.bias.present()) bias = nullptr;
    if (!problem.args.mask.present()) mask = nullptr;
    if (!problem.args.alibi_slopes.present()) slope = nullptr;
  }

  /// Entries for the lanes of one block, padding included.
  void fill(const Problem& problem, const QueryBlock& block, std::int64_t lanes) {
    const ScoreRows bias_rows(problem.args.bias), mask_rows(problem.args.mask);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::int64_t i = block.query(lane), head = block.head(lane);
      const KeyRange keys = block.sequence.mask.keys(i);
      position[lane] = i + block.sequence.mask.shift;
      key_begin[lane] = keys.begin;
      key_end[lane] = keys.end;
      if (bias) bias[lane] = bias_rows.at(block.sequence, head, i);
      if (mask) mask[lane] = mask_rows.at(block.sequence, head, i);
      if (slope) slope[lane] = static_cast<T>(alibi_slope(problem, block.sequence, head) * kLog2E);
    }
  }
};

/// What q is multiplied by so that products become scores in units of log2(e), or arguments of tanh with a softcap.
inline double query_factor(const Problem& problem) {
  return problem.softcap > 0 ? problem.softmax_scale / problem.softcap : problem.softmax_scale * kLog2E;
}

}  // namespace onchip::cpu
