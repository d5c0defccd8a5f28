#include "model/tile_options.hpp"

#include <gtest/gtest.h>

namespace onchip::model {
namespace {

AttentionShape shape_of(std::int64_t head_dim, DType dtype = DType::bf16) {
  AttentionShape shape;
  shape.seqlen_q = shape.seqlen_k = 4096;
  shape.num_heads_q = shape.num_heads_kv = 8;
  shape.head_dim = shape.head_dim_v = head_dim;
  shape.dtype = shape.kv_dtype = dtype;
  return shape;
}

Machine host_like() { return cpu_machine("cpu", 4, {32 << 10, 512 << 10, 16 << 20, 64}, {}); }

TEST(TileOptions, FlashAttention3sTilesFitAnH200) {
  const Machine& h200 = *find_machine("H200");
  EXPECT_TRUE(fits(h200, shape_of(64), {192, 128}, Pass::forward));
  EXPECT_TRUE(fits(h200, shape_of(128), {128, 176}, Pass::forward));
  EXPECT_TRUE(fits(h200, shape_of(256), {128, 80}, Pass::forward));
  EXPECT_FALSE(fits(h200, shape_of(128), {256, 176}, Pass::forward));
  EXPECT_FALSE(fits(h200, shape_of(128), {128, 256}, Pass::forward));
}

TEST(TileOptions, HandComputedRoom) {
  const Machine& h200 = *find_machine("H200");
  const AttentionShape shape = shape_of(128);
  EXPECT_EQ(on_chip_bytes(h200, shape, {128, 176}, Pass::forward), 128 * 256 + 2 * 176 * 512);
  EXPECT_EQ(accumulator_bytes(h200, shape, {128, 176}, Pass::forward), 4 * (128 * 128 + 1.5 * 128 * 176));
  EXPECT_EQ(on_chip_bytes(h200, shape, {64, 128}, Pass::backward), 128 * 512 + 2 * 64 * 512 + 64 * 128 * 2);
  EXPECT_EQ(accumulator_bytes(h200, shape, {64, 128}, Pass::backward), 4 * (128 * 256 + 2 * 64 * 128));
  EXPECT_EQ(accumulator_bytes(host_like(), shape, {64, 128}, Pass::forward), 0);
}

TEST(TileOptions, EachIsTheLargestThatFits) {
  for (const Machine& machine : {*find_machine("H200"), *find_machine("RTX4090"), host_like()})
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (const std::int64_t head_dim : {64, 128, 256}) {
        const AttentionShape shape = shape_of(head_dim);
        for (const TileOption& option : tile_options(machine, shape, {}, pass)) {
          EXPECT_EQ(option.fits, fits(machine, shape, option.tiling, pass));
          Tiling wider = option.tiling;
          (pass == Pass::forward ? wider.tile_n : wider.tile_m) += 16;
          const std::int64_t width = pass == Pass::forward ? wider.tile_n : wider.tile_m;
          EXPECT_FALSE(width <= 256 && fits(machine, shape, wider, pass));
        }
      }
}

TEST(TileOptions, BestFitsAndMovesTheLeast) {
  const auto options = tile_options(*find_machine("H200"), shape_of(128), {}, Pass::forward);
  const TileOption* best = best_option(options);
  ASSERT_NE(best, nullptr);
  EXPECT_TRUE(best->fits);
  for (const TileOption& option : options)
    EXPECT_TRUE(!option.fits || option.traffic.levels[1].total() >= best->traffic.levels[1].total());
  EXPECT_EQ(best_option({}), nullptr);
}

TEST(TileOptions, NothingFitsWhenHeadsAreHuge) {
  const auto options = tile_options(*find_machine("RTX4090"), shape_of(4096), {}, Pass::forward);
  for (const TileOption& option : options) EXPECT_FALSE(option.fits);
  EXPECT_EQ(best_option(options), nullptr);
}

TEST(TileOptions, FewRowsNeedNoTallTiles) {
  AttentionShape shape = shape_of(128);
  shape.seqlen_q = 1;
  EXPECT_EQ(tile_options(*find_machine("H200"), shape, {}, Pass::forward).size(), 1u);
}

}  // namespace
}  // namespace onchip::model
