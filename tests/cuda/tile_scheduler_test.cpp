// Every tile is computed once, whatever the grid.
#include "cuda/shared/tile_scheduler.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace onchip::test {
namespace {

TEST(TileScheduler, VisitsEveryTileOnce) {
  for (std::int32_t m_blocks = 1; m_blocks <= 6; ++m_blocks)
    for (std::int32_t columns = 1; columns <= 9; ++columns)
      for (std::int32_t group = 1; group <= columns + 1; ++group) {
        std::set<std::pair<int, int>> seen;
        std::int32_t last_m = m_blocks;
        for (std::int64_t index = 0; index < std::int64_t{m_blocks} * columns; ++index) {
          const cuda::TileIndex tile = cuda::tile_of(index, m_blocks, columns, group);
          ASSERT_TRUE(tile.m_block >= 0 && tile.m_block < m_blocks && tile.column >= 0 && tile.column < columns);
          seen.insert({tile.m_block, tile.column});
          if (group >= columns) {
            EXPECT_LE(tile.m_block, last_m) << "long tiles come first";
            last_m = tile.m_block;
          }
        }
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(m_blocks) * static_cast<std::size_t>(columns));
      }
}

TEST(TileScheduler, PackedBlocksCoverEverySequence) {
  const std::vector<std::vector<std::int32_t>> lists = {
      {0, 5}, {0, 0, 0}, {0, 64, 64, 65, 300}, {0, 1, 2, 3, 130, 131, 131}, {0, 63, 127, 128}};
  for (const auto& begins : lists)
    for (const std::int64_t rows_per_query : {1, 4, 7})
      for (const std::int64_t tile_m : {16, 64, 128}) {
        const auto batch = static_cast<std::int32_t>(begins.size()) - 1;
        const std::int64_t blocks = begins.back() * rows_per_query / tile_m + batch;
        std::vector<std::int64_t> covered(static_cast<std::size_t>(batch), 0);
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::int32_t b = cuda::packed_sequence(begins.data(), batch, rows_per_query, tile_m, block);
          ASSERT_TRUE(b >= 0 && b < batch);
          const std::int64_t local = block - cuda::first_packed_block(begins[b] * rows_per_query, b, tile_m);
          EXPECT_EQ(local, covered[static_cast<std::size_t>(b)]++) << "blocks of a sequence count up from 0";
        }
        for (std::int32_t b = 0; b < batch; ++b)
          EXPECT_GE(covered[static_cast<std::size_t>(b)] * tile_m, (begins[b + 1] - begins[b]) * rows_per_query);
      }
}

}  // namespace
}  // namespace onchip::test
