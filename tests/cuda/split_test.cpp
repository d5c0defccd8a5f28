// Splits of the keys: every key once, in whole steps, and no more CTAs than pay.
#include "cuda/shared/split.hpp"

#include <gtest/gtest.h>

namespace onchip::test {
namespace {

/// Every split in turn covers the range without gaps, and begins at a step.
void expect_cover(KeyRange keys, std::int64_t num_splits, std::int64_t size, std::int64_t tile_n) {
  std::int64_t next = keys.begin;
  for (std::int64_t split = 0; split < num_splits; ++split) {
    const KeyRange part = cuda::split_keys(keys, split, num_splits, size, tile_n);
    if (part.empty()) continue;
    ASSERT_EQ(part.begin, next);
    ASSERT_TRUE(part.begin == keys.begin || part.begin % tile_n == 0);
    next = part.end;
  }
  ASSERT_EQ(next, keys.empty() ? keys.begin : keys.end)
      << keys.begin << "…" << keys.end << " in " << num_splits << " of " << size << " by " << tile_n;
}

TEST(Split, CoversEveryKeyOnce) {
  for (const std::int64_t tile_n : {32, 64})
    for (std::int64_t begin = 0; begin < 200; begin += 13)
      for (std::int64_t end = begin; end < 600; end += 7)
        for (std::int64_t splits = 1; splits <= 20; ++splits)
          ASSERT_NO_FATAL_FAILURE(expect_cover({begin, end}, splits, 0, tile_n));
}

TEST(Split, FixedSizesCoverEveryKeyWhereverTheyBegin) {
  for (const std::int64_t tile_n : {32, 64})
    for (const std::int64_t keys : {0, 1, 63, 1984, 1985, 2048, 2049, 5000, 100'000, 3'000'000}) {
      const cuda::FixedSplits fixed = cuda::fixed_splits(keys, tile_n);
      EXPECT_LE(fixed.num_splits, cuda::kMaxFixedSplits);
      EXPECT_EQ(fixed.size % tile_n, 0);
      for (const std::int64_t begin : {0, 1, 31, 63, 64, 1000})
        ASSERT_NO_FATAL_FAILURE(expect_cover({begin, begin + keys}, fixed.num_splits, fixed.size, tile_n));
    }
}

/// Where a sequence ends and how many splits there are does not move the boundaries.
TEST(Split, FixedSizesHaveFixedBoundaries) {
  for (std::int64_t end = 1; end < 9000; end += 97)
    for (std::int64_t split = 0; split < 4; ++split) {
      const KeyRange part = cuda::split_keys({0, end}, split, 5, 2048, 64),
                     longer = cuda::split_keys({0, 20'000}, split, 10, 2048, 64);
      if (part.empty()) continue;
      EXPECT_EQ(part.begin, longer.begin);
      EXPECT_EQ(part.end, std::min(longer.end, end));
    }
}

TEST(Split, NumbersPay) {
  for (const std::int64_t slots : {132, 264})
    for (std::int64_t tiles = 0; tiles < 700; tiles += tiles < 300 ? 1 : 50)
      for (const std::int64_t keys : {0, 1, 64, 65, 500, 4096, 131'072}) {
        const cuda::SplitProblem p{tiles, keys, 64, slots};
        const std::int64_t n = cuda::choose_num_splits(p);
        ASSERT_GE(n, 1);
        ASSERT_LE(n, std::max<std::int64_t>(1, (keys + 63) / 64));
        ASSERT_LE(n, cuda::kMaxSplits);
        ASSERT_LE(cuda::split_cost(p, n), cuda::split_cost(p, 1));
        if (tiles == slots) {
          ASSERT_EQ(n, 1) << "the GPU is full";
        }
      }
  EXPECT_EQ(cuda::choose_num_splits({8, 4096, 64, 264}), 32) << "two steps each";
  EXPECT_EQ(cuda::choose_num_splits({64, 8192, 64, 264}), 4);
  EXPECT_EQ(cuda::choose_num_splits({1, 64, 64, 264}), 1) << "one step has no parts";
}

}  // namespace
}  // namespace onchip::test
