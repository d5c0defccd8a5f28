#include "model/tile_choice.hpp"

#include <gtest/gtest.h>

namespace onchip::model {
namespace {

constexpr CacheSizes kSmall{32 << 10, 256 << 10, 8 << 20, 64};
constexpr CacheSizes kZen3{32 << 10, 512 << 10, 32 << 20, 64};
constexpr CacheSizes kZen5{48 << 10, 1 << 20, 32 << 20, 64};
constexpr CacheSizes kNoL3{64 << 10, 4 << 20, 0, 64};

CpuTileRequest request(Pass pass, std::int64_t seqlen, std::int64_t head_dim) {
  CpuTileRequest r;
  r.pass = pass;
  r.seqlen_q = r.seqlen_k = seqlen;
  r.head_dim = r.head_dim_v = head_dim;
  return r;
}

template <typename Body>
void for_grid(Body&& body) {
  for (const CacheSizes& caches : {kSmall, kZen3, kZen5, kNoL3})
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (const std::int64_t head_dim : {1, 40, 64, 128, 256})
        for (const std::int64_t seqlen : {1, 17, 512, 4096, 100'000})
          for (const std::int64_t window_right : {-1, 0})
            for (const std::int64_t granule_m : {8, 24, 48}) {
              CpuTileRequest r = request(pass, seqlen, head_dim);
              r.window_right = window_right;
              r.granule_m = granule_m;
              body(r, caches);
            }
}

std::int64_t scratch_bytes(const CpuTileRequest& r, std::int64_t tile_m, std::int64_t tile_n) {
  return cpu_scratch_elements(r.pass, tile_m, tile_n, r.head_dim, r.head_dim_v, r.granule_m) * r.compute_bytes;
}

TEST(TileChoice, FitsTheScratchUnlessOneGranuleDoesNot) {
  for_grid([](const CpuTileRequest& r, const CacheSizes& caches) {
    const TileConfig tile = choose_cpu_tile(r, caches);
    const bool one_granule = tile.tile_m == r.granule_m && tile.tile_n == r.granule_n;
    EXPECT_TRUE(one_granule || scratch_bytes(r, tile.tile_m, tile.tile_n) <= cpu_scratch_budget(caches));
    EXPECT_EQ(tile.tile_m % r.granule_m, 0);
    EXPECT_EQ(tile.tile_n % r.granule_n, 0);
    EXPECT_GT(tile.tile_m, 0);
    EXPECT_GT(tile.tile_n, 0);
  });
}

/// A kernel's own scratch, with what it keeps for each row and key.
TEST(TileChoice, TakesWhatTheKernelKeepsIntoAccount) {
  for (const std::int64_t head_dim : {128, 256}) {
    CpuTileRequest r = request(Pass::forward, 2048, head_dim);
    r.granule_m = 48;
    r.max_tile_n = 128;
    const auto scratch = [&](std::int64_t tile_m, std::int64_t tile_n) {
      return scratch_bytes(r, tile_m, tile_n) + 80 * tile_m + 16 * tile_n + 16384;
    };
    const TileConfig tile = choose_cpu_tile(r, kZen5, scratch), without = choose_cpu_tile(r, kZen5);
    EXPECT_LE(scratch(tile.tile_m, tile.tile_n), cpu_scratch_budget(kZen5));
    EXPECT_GT(scratch(without.tile_m, without.tile_n), cpu_scratch_budget(kZen5)) << "the test shows nothing";
    for (std::int64_t m = r.granule_m; m <= 1024; m += r.granule_m)
      for (std::int64_t n = r.granule_n; n <= r.max_tile_n; n += r.granule_n)
        if (scratch(m, n) <= cpu_scratch_budget(kZen5)) {
          EXPECT_GE(cpu_tile_cost(r, m, n, kZen5), 0.99 * cpu_tile_cost(r, tile.tile_m, tile.tile_n, kZen5));
        }
  }
}

TEST(TileChoice, NoLargerThanTheProblem) {
  for_grid([](const CpuTileRequest& r, const CacheSizes& caches) {
    const TileConfig tile = choose_cpu_tile(r, caches);
    EXPECT_LT(tile.tile_m, r.seqlen_q + r.granule_m);
    EXPECT_LT(tile.tile_n, r.seqlen_k + r.granule_n);
  });
}

TEST(TileChoice, NoFittingTileCostsLess) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const std::int64_t head_dim : {64, 128})
      for (const std::int64_t window_right : {-1, 0}) {
        CpuTileRequest r = request(pass, 2048, head_dim);
        r.window_right = window_right;
        const TileConfig tile = choose_cpu_tile(r, kZen3);
        // Tiles are made equal after the choice, which may cost a little.
        const double limit = 0.99 * cpu_tile_cost(r, tile.tile_m, tile.tile_n, kZen3);
        for (std::int64_t m = r.granule_m; m <= 512; m += r.granule_m)
          for (std::int64_t n = r.granule_n; n <= 512; n += r.granule_n)
            if (scratch_bytes(r, m, n) <= cpu_scratch_budget(kZen3)) {
              EXPECT_GE(cpu_tile_cost(r, m, n, kZen3), limit);
            }
      }
}

TEST(TileChoice, LargerCacheNeverCostsMore) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const std::int64_t head_dim : {32, 64, 128}) {
      const CpuTileRequest r = request(pass, 2048, head_dim);
      CacheSizes caches = kZen3;
      const TileConfig small = choose_cpu_tile(r, caches);
      caches.l2_bytes = 1 << 20;
      const TileConfig large = choose_cpu_tile(r, caches);
      EXPECT_LE(cpu_tile_cost(r, large.tile_m, large.tile_n, caches),
                cpu_tile_cost(r, small.tile_m, small.tile_n, caches));
      EXPECT_GT(large.tile_m * large.tile_n, small.tile_m * small.tile_n);
    }
}

TEST(TileChoice, LongerNeighboursDoNotChangeTheOrderOfSums) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const std::int64_t window_right : {-1, 0}) {
      CpuTileRequest r = request(pass, 100'000, 64);
      r.window_right = window_right;
      const TileConfig longest = choose_cpu_tile(r, kZen3);
      for (const std::int64_t seqlen : {1, 7, 64, 300, 5000}) {
        r.seqlen_q = r.seqlen_k = seqlen;
        const std::int64_t tile_n = choose_cpu_tile(r, kZen3).tile_n;
        EXPECT_TRUE(tile_n == longest.tile_n || (tile_n < longest.tile_n && tile_n >= seqlen)) << seqlen;
      }
    }
}

TEST(TileChoice, EqualTilesLeaveNoSliver) {
  CpuTileRequest r = request(Pass::forward, 300, 64);
  const TileConfig tile = choose_cpu_tile(r, kZen3);
  const std::int64_t blocks = (300 + tile.tile_m - 1) / tile.tile_m;
  EXPECT_LT(blocks * tile.tile_m - 300, blocks * r.granule_m);
}

TEST(TileChoice, MaskedEdgesAskForNarrowerBlocksGoingBackward) {
  CpuTileRequest r = request(Pass::backward, 1024, 64);
  const double narrow = cpu_tile_cost(r, 48, 256, kZen5), wide = cpu_tile_cost(r, 480, 256, kZen5);
  r.window_right = 0;
  const double narrow_causal = cpu_tile_cost(r, 48, 256, kZen5), wide_causal = cpu_tile_cost(r, 480, 256, kZen5);
  EXPECT_GT(wide_causal / narrow_causal, wide / narrow);
}

TEST(TileChoice, PanelsStopAtMaskedEdgesGoingForward) {
  CpuTileRequest r = request(Pass::forward, 1024, 64);
  const TileConfig dense = choose_cpu_tile(r, kZen5);
  r.window_right = 0;
  const TileConfig causal = choose_cpu_tile(r, kZen5);
  EXPECT_EQ(causal.tile_m * causal.tile_n, dense.tile_m * dense.tile_n);
}

TEST(TileChoice, EmptyProblemsGetOneGranule) {
  CpuTileRequest r = request(Pass::forward, 0, 64);
  EXPECT_EQ(choose_cpu_tile(r, kZen3).tile_m, r.granule_m);
  EXPECT_EQ(choose_cpu_tile(r, kZen3).tile_n, r.granule_n);
  r.seqlen_k = 5;
  EXPECT_EQ(choose_cpu_tile(r, kZen3).tile_n, r.granule_n);
}

TEST(TileChoice, ScratchCountsEveryBuffer) {
  EXPECT_EQ(cpu_scratch_elements(Pass::forward, 48, 10, 3, 5, 24), (48 + 2 * 10) * 8 + 24 * 10);
  EXPECT_EQ(cpu_scratch_elements(Pass::forward, 16, 10, 3, 5, 24), (16 + 2 * 10) * 8 + 16 * 10);
  EXPECT_EQ(cpu_scratch_elements(Pass::backward, 16, 8, 3, 5, 16), 2 * 16 * 8 + 2 * 8 * 8 + 2 * 16 * 8);
  EXPECT_EQ(cpu_scratch_budget(kZen3), 256 << 10);
  EXPECT_EQ(cpu_scratch_budget(kNoL3), 512 << 10);
}

TEST(TileChoice, CostOfAHandComputedCase) {
  // 32 queries and 64 keys in one step of 32 × 64, D = Dv = 4, f32: 64·16 FLOP at 32 a cycle, 64 rows of 32 bytes
  // shared by 32 queries and the query's own 32 bytes at 16 bytes a cycle, 2·16 bytes of O at 32 a cycle.
  CpuTileRequest r = request(Pass::forward, 32, 4);
  r.seqlen_k = 64;
  EXPECT_DOUBLE_EQ(cpu_tile_cost(r, 32, 64, kZen3), 32 + 4 + 2 + 1);
}

}  // namespace
}  // namespace onchip::model
