// How keys are split over CTAs where there are too few tiles of queries to fill the GPU. Pure integer code for host and
// device. A split writes partial results, which a second kernel merges in the splits' order: the same bits every time.
#pragma once

#include <cstdint>

#include "shared/ceil_div.hpp"
#include "shared/mask_range.hpp"

namespace onchip::cuda {

/// What the number of splits depends on.
struct SplitProblem {
  std::int64_t tiles;  // CTAs without splits
  std::int64_t keys;   // most keys that a tile of queries sees
  std::int64_t tile_n;
  std::int64_t slots;  // CTAs that run at once without slowing each other down much
};

constexpr std::int64_t kMaxSplits = 128;
/// Costs besides the steps over tile_n keys, in steps: of a CTA's beginning and end, and of partial results that are
/// written, read and merged.
constexpr std::int64_t kTileCost = 1, kPartialCost = 3;

/// Steps that the GPU needs, one wave of CTAs after another.
constexpr std::int64_t split_cost(const SplitProblem& p, std::int64_t num_splits) {
  const std::int64_t waves = ceil_div(p.tiles * num_splits, p.slots);
  const std::int64_t steps = ceil_div(ceil_div(p.keys, p.tile_n), num_splits);
  return waves * (steps + kTileCost + (num_splits > 1 ? kPartialCost : 0));
}

/// The cheapest number of splits; the smallest of those.
constexpr std::int64_t choose_num_splits(const SplitProblem& p) {
  const std::int64_t steps = ceil_div(p.keys, p.tile_n);
  const std::int64_t most = steps < kMaxSplits ? steps : kMaxSplits;
  if (p.tiles >= p.slots * kMaxSplits) return 1;
  std::int64_t best = 1;
  for (std::int64_t n = 2; n <= most; ++n)
    if (split_cost(p, n) < split_cost(p, best)) best = n;
  return best;
}

/// Splits of a size that depends on nothing but itself, for results that do not depend on the rest of a batch: enough
/// of them for `keys` keys wherever those begin. Beyond kMaxFixedSplits of them the size doubles.
struct FixedSplits {
  std::int64_t num_splits;
  std::int64_t size;
};
constexpr std::int64_t kFixedSplitSize = 2048, kMaxFixedSplits = 1024;

constexpr FixedSplits fixed_splits(std::int64_t keys, std::int64_t tile_n) {
  std::int64_t size = kFixedSplitSize;
  while (ceil_div(keys + tile_n, size) > kMaxFixedSplits) size *= 2;
  const std::int64_t num_splits = ceil_div(keys + tile_n, size);
  return {keys <= size - tile_n ? 1 : num_splits, size};
}

/// The part of `keys` that split `split` computes: whole steps of tile_n keys, counted from 0; of equal size, or of
/// `size` keys where that is given.
constexpr KeyRange split_keys(KeyRange keys, std::int64_t split, std::int64_t num_splits, std::int64_t size,
                              std::int64_t tile_n) {
  const std::int64_t first = keys.begin / tile_n;
  const std::int64_t steps = size > 0 ? size / tile_n : ceil_div(ceil_div(keys.end, tile_n) - first, num_splits);
  const std::int64_t begin = (first + split * steps) * tile_n;
  const std::int64_t end = begin + steps * tile_n;
  if (keys.empty() || begin >= keys.end) return {keys.begin, keys.begin};
  return {begin > keys.begin ? begin : keys.begin, end < keys.end ? end : keys.end};
}

}  // namespace onchip::cuda
