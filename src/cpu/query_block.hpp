// Which queries the lanes of a tile are.
//
// The G query heads that share a KV head share its tiles: rows are packed query by query, r = i·G + g, so that a block
// of rows spans few queries and its causal edge is narrow. Lanes past the last row repeat it; their results are
// dropped.
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
  T* slope;                 // ALiBi slope; null without ALiBi
  std::int64_t* position;   // where the query stands among the keys
  std::int64_t* key_begin;  // keys the row sees through causal mask and window
  std::int64_t* key_end;

  static std::size_t bytes(std::size_t lanes) {
    return 2 * aligned_bytes<const std::byte*>(lanes) + aligned_bytes<T>(lanes) +
           3 * aligned_bytes<std::int64_t>(lanes);
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
      if (slope) slope[lane] = static_cast<T>(alibi_slope(problem, block.sequence, head));
    }
  }
};

/// How products q·k become scores. q is multiplied by the sign of the scale alone, which is exact; the magnitude is
/// applied to the product, inside the exponent where nothing else needs the score: scores then carry no rounding but
/// that of the product, which matters where they are large.
struct ScoreUnits {
  double query_factor;    // −1, 0 or 1
  double product_factor;  // > 0: score = product_factor · product
  double log2_unit;       // > 0: what a tile's number counts, in log2(e): the score's unit, or the product's
};

inline ScoreUnits score_units(const Problem& problem) {
  const double scale = problem.softmax_scale;
  const double sign = scale > 0 ? 1.0 : scale < 0 ? -1.0 : 0.0;
  const double magnitude = scale == 0 ? 1.0 : sign * scale;
  const Attention& args = problem.args;
  const bool has_terms = problem.softcap > 0 || args.bias.present() || args.alibi_slopes.present();
  return {sign, magnitude, (has_terms ? 1.0 : magnitude) * kLog2E};
}

}  // namespace onchip::cpu
