#include "model/traffic.hpp"

#include <gtest/gtest.h>

namespace onchip::model {
namespace {

constexpr double kMB = 1e6;

const Machine& h200() { return *find_machine("H200"); }

/// B = 1, H = 16, S = 8192, D = 128, bf16: the shape that hardware counters were read for.
AttentionShape measured_shape() {
  AttentionShape shape;
  shape.seqlen_q = shape.seqlen_k = 8192;
  shape.num_heads_q = shape.num_heads_kv = 16;
  shape.head_dim = shape.head_dim_v = 128;
  shape.dtype = shape.kv_dtype = DType::bf16;
  return shape;
}

/// A machine on which sums are easy: one unit, one private level, one shared cache of 1000 bytes.
Machine small_machine(double cache_bytes = 1000) {
  Machine machine;
  machine.kind = MachineKind::gpu;
  machine.units = 1;
  machine.levels = {{"near", 1e6, false, 0}, {"cache", cache_bytes, true, 0}, {"memory", 0, true, 0}};
  machine.block = {.queries = 2, .keys = 2, .p_in_registers = true};
  machine.gemm = {.tile_m = 2, .tile_n = 2, .cluster = 1};
  return machine;
}

/// 4 queries, 8 keys, D = Dv = 2, f32, one head: q 32 bytes, k and v 128 together, o 32, lse 16.
AttentionShape small_shape() {
  AttentionShape shape;
  shape.seqlen_q = 4;
  shape.seqlen_k = 8;
  shape.head_dim = shape.head_dim_v = 2;
  return shape;
}

void expect_within(double predicted_mb, double measured_mb, double tolerance) {
  EXPECT_NEAR(predicted_mb / measured_mb, 1.0, tolerance)
      << predicted_mb << " predicted, " << measured_mb << " MB measured";
}

// The counters of one run on an H200 (docs/traffic.md): each is named with its tolerance.

TEST(TrafficAgainstCounters, MainMemoryOfFlashAttention3) {
  const Traffic t =
      tiled_traffic(h200(), measured_shape(), {.tile_m = 128, .tile_n = 176, .cluster = 2}, Pass::forward);
  expect_within(t.main_memory().read_bytes / kMB, 100.8, 0.03);
  expect_within(t.main_memory().write_bytes / kMB, 22.4, 0.03);
  expect_within(t.main_memory().total() / kMB, 100.8 + 22.4, 0.03);
  expect_within((t.main_memory().write_bytes + t.dirty_bytes) / kMB, 34.1, 0.001);
}

TEST(TrafficAgainstCounters, MainMemoryOfStandardAttention) {
  const Traffic t = standard_traffic(
      h200(), measured_shape(), {.score_dtype = DType::bf16, .cache = CacheBetweenKernels::flushed}, Pass::forward);
  expect_within(t.main_memory().read_bytes / kMB, 6608, 0.05);
  expect_within(t.main_memory().write_bytes / kMB, 6395, 0.05);
}

TEST(TrafficAgainstCounters, L2) {
  const auto l2 = [](const Traffic& t) { return t.levels[1].total() / kMB; };
  const AttentionShape shape = measured_shape();
  expect_within(l2(tiled_traffic(h200(), shape, {128, 176, 2}, Pass::forward)), 2406, 0.05);
  expect_within(l2(standard_traffic(h200(), shape, {.score_dtype = DType::bf16}, Pass::forward)), 22482, 0.05);
  // Without clusters blocks drift apart, and lines cross between the halves of the cache more than once.
  expect_within(l2(tiled_traffic(h200(), shape, {128, 64, 1}, Pass::forward)), 5490, 0.20);
}

TEST(TiledTraffic, HandComputedForward) {
  const Traffic t = tiled_traffic(small_machine(), small_shape(), {.tile_m = 2, .tile_n = 4}, Pass::forward);
  EXPECT_EQ(t.flops, 2 * 4 * 8 * 4);
  EXPECT_EQ(t.exponentials, 32);
  // Two blocks of queries, each reads all keys.
  EXPECT_EQ(t.levels[1].read_bytes, 32 + 2 * 128);
  EXPECT_EQ(t.levels[1].write_bytes, 32 + 16);
  EXPECT_EQ(t.levels[0].write_bytes, 32 + 2 * 128);
  // 32 pairs: K and V for blocks of 2 queries, Q for blocks of 2 keys, 4 bytes an element.
  EXPECT_EQ(t.levels[0].read_bytes, 32 * 4 * (2 + 2 + 2) / 2);
  EXPECT_EQ(t.main_memory().read_bytes, 32 + 128);
  EXPECT_EQ(t.main_memory().write_bytes, 0);  // all of it is still in the cache
  EXPECT_EQ(t.dirty_bytes, 48);
}

TEST(TiledTraffic, KeysThatDoNotFitTheCacheAreDeliveredAgain) {
  const Traffic t = tiled_traffic(small_machine(100), small_shape(), {.tile_m = 2, .tile_n = 4}, Pass::forward);
  EXPECT_EQ(t.main_memory().read_bytes, 32 + 2 * 128);
  EXPECT_DOUBLE_EQ(t.dirty_bytes, 48.0 * 100 / (32 + 2 * 128 + 48));
  EXPECT_DOUBLE_EQ(t.main_memory().write_bytes, 48 - t.dirty_bytes);
}

TEST(TiledTraffic, WithoutASharedCacheEveryBlockReadsMainMemory) {
  Machine machine = small_machine();
  machine.levels.erase(machine.levels.begin() + 1);
  machine.levels[0].capacity_bytes = 100;
  const Traffic t = tiled_traffic(machine, small_shape(), {.tile_m = 1, .tile_n = 4}, Pass::forward);
  EXPECT_EQ(t.main_memory().read_bytes, 32 + 4 * 128);
  EXPECT_EQ(t.main_memory().write_bytes, 48);
}

TEST(TiledTraffic, ClustersShareReadsAndHeadsShareTiles) {
  const AttentionShape shape = measured_shape();
  const double alone = tiled_traffic(h200(), shape, {128, 128, 1}, Pass::forward).levels[1].read_bytes;
  const double pairs = tiled_traffic(h200(), shape, {128, 128, 2}, Pass::forward).levels[1].read_bytes;
  EXPECT_LT(pairs, 0.53 * alone);
  AttentionShape decode = small_shape();
  decode.seqlen_q = 1;
  decode.num_heads_q = 4;
  Tiling tiling{.tile_m = 4, .tile_n = 4};
  EXPECT_EQ(tiled_traffic(small_machine(), decode, tiling, Pass::forward).levels[1].read_bytes, 32 + 4 * 128);
  tiling.heads_per_tile = 4;
  EXPECT_EQ(tiled_traffic(small_machine(), decode, tiling, Pass::forward).levels[1].read_bytes, 32 + 128);
  EXPECT_EQ(tiled_traffic(small_machine(), decode, tiling, Pass::forward).main_memory().read_bytes, 32 + 128);
}

TEST(TiledTraffic, CausalReadsHalfAndWindowsOnlyTheirKeys) {
  AttentionShape shape = measured_shape();
  const Tiling tiling{128, 128, 1};
  const Traffic dense = tiled_traffic(h200(), shape, tiling, Pass::forward);
  shape.window_right = 0;
  const Traffic causal = tiled_traffic(h200(), shape, tiling, Pass::forward);
  // Block b of 64 skips the last 63 − b tiles.
  EXPECT_EQ(dense.levels[1].read_bytes - causal.levels[1].read_bytes, 16.0 * (63 * 64 / 2) * 128 * 512);
  EXPECT_NEAR(causal.flops / dense.flops, 0.5, 0.001);
  EXPECT_EQ(causal.main_memory().read_bytes, dense.main_memory().read_bytes);
  shape.window_left = 255;
  const Traffic window = tiled_traffic(h200(), shape, tiling, Pass::forward);
  EXPECT_LT(window.levels[1].read_bytes, 0.1 * dense.levels[1].read_bytes);
  shape.seqlen_q = 1;  // decode in a window sees 256 keys of 8192
  EXPECT_EQ(shape.visible_kv_bytes(), 16 * 256 * 256 * 2);
}

TEST(TiledTraffic, SmallerKeyTypesMoveFewerBytes) {
  AttentionShape shape = measured_shape();
  shape.seqlen_q = 1;
  const double wide = tiled_traffic(h200(), shape, {}, Pass::forward).main_memory().read_bytes;
  shape.kv_dtype = DType::i8;
  const double narrow = tiled_traffic(h200(), shape, {}, Pass::forward).main_memory().read_bytes;
  EXPECT_EQ(wide - narrow, 16 * 8192 * 256);
  shape.scale_per_token = true;
  EXPECT_EQ(tiled_traffic(h200(), shape, {}, Pass::forward).main_memory().read_bytes - narrow, 16 * 8192 * 8);
}

TEST(TiledTraffic, SplitsWriteAndReadPartialResults) {
  AttentionShape shape = small_shape();
  Tiling tiling{.tile_m = 4, .tile_n = 4};
  const Traffic one = tiled_traffic(small_machine(), shape, tiling, Pass::forward);
  tiling.num_splits = 3;
  const Traffic three = tiled_traffic(small_machine(), shape, tiling, Pass::forward);
  EXPECT_EQ(three.extra_bytes, 3 * 4 * 3 * 4);
  EXPECT_EQ(three.levels[1].read_bytes - one.levels[1].read_bytes, three.extra_bytes);
  EXPECT_EQ(three.main_memory().total(), one.main_memory().total());
}

TEST(TiledTraffic, HandComputedBackward) {
  // One block of 8 keys: queries pass once. q 32, o 32, lse and row sums 16 each.
  const Traffic t = tiled_traffic(small_machine(), small_shape(), {.tile_m = 2, .tile_n = 8}, Pass::backward);
  EXPECT_EQ(t.flops, 2 * 32 * (3 * 2 + 2 * 2));
  const double passing = 32 + 32 + 16 + 16, staying = 128 + 2 * 32;
  EXPECT_EQ(t.main_memory().read_bytes, passing + staying);
  EXPECT_EQ(t.dirty_bytes, 128 + 32);                             // dk, dv, dq
  EXPECT_EQ(t.levels[1].read_bytes, passing + staying + 2 * 32);  // dq: read for each block and at the end
}

TEST(TiledTraffic, CopiesOfDqLeaveTheCacheTogether) {
  // dQ has 32 bytes; four copies do not fit a cache of 100 bytes, one does. Queries pass once in any case.
  const Machine machine = small_machine(100);
  const auto backward = [&](std::int64_t splits) {
    return tiled_traffic(machine, small_shape(), {.tile_m = 2, .tile_n = 8, .num_splits = splits}, Pass::backward);
  };
  EXPECT_DOUBLE_EQ(backward(4).main_memory().total() - backward(1).main_memory().total(), 2 * 4 * 32);
  EXPECT_EQ(backward(4).extra_bytes - backward(1).extra_bytes, 3 * 32);
}

TEST(TiledTraffic, StoresOfACpuFirstReadTheirLines) {
  Machine machine = small_machine();
  const double before = tiled_traffic(machine, small_shape(), {}, Pass::forward).main_memory().read_bytes;
  machine.write_allocate = true;
  EXPECT_EQ(tiled_traffic(machine, small_shape(), {}, Pass::forward).main_memory().read_bytes, before + 48);
}

TEST(TiledTraffic, NothingToDo) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const auto member : {&AttentionShape::batch, &AttentionShape::seqlen_q}) {
      AttentionShape shape = small_shape();
      shape.*member = 0;
      const Traffic t = tiled_traffic(small_machine(), shape, {}, pass);
      EXPECT_EQ(t.main_memory().total(), 0);
      EXPECT_EQ(t.flops, 0);
    }
  AttentionShape shape = small_shape();
  shape.seqlen_k = 0;  // rows without keys are still written
  EXPECT_EQ(tiled_traffic(small_machine(), shape, {}, Pass::forward).dirty_bytes, 48);
}

TEST(StandardTraffic, HandComputedKernels) {
  // S has 32 elements: 128 bytes. Nothing fits a cache of 10 bytes.
  const auto kernels = standard_kernels(small_machine(10), small_shape(), {}, Pass::forward);
  ASSERT_EQ(kernels.size(), 4u);
  const double k = 64, v = 64, q = 32, s = 128, o = 32, lse = 16;
  const auto memory_read = [&](std::size_t i) { return kernels[i].traffic.main_memory().read_bytes; };
  EXPECT_EQ(memory_read(1), s);
  EXPECT_EQ(memory_read(2), s);
  // Products whose inputs exceed the cache read them for every tile: Q for 4 columns of tiles, K and V for 2 rows.
  EXPECT_EQ(memory_read(0), 4 * q + 2 * k);
  EXPECT_EQ(memory_read(3), s + 2 * v);
  EXPECT_EQ(kernels[0].traffic.levels[1].read_bytes, 4 * q + 2 * k);
  double written = 0;
  for (const StandardKernel& kernel : kernels)
    written += kernel.traffic.main_memory().write_bytes + kernel.traffic.dirty_bytes;
  EXPECT_DOUBLE_EQ(written, 3 * s + o + lse);
}

TEST(StandardTraffic, ScoresThatFitTheCacheAreFoundThere) {
  const Machine machine = small_machine(1e6);
  const auto kept = standard_traffic(machine, small_shape(), {}, Pass::forward);
  EXPECT_EQ(kept.main_memory().read_bytes, 32 + 64 + 64);
  EXPECT_EQ(kept.main_memory().write_bytes, 0);
  const auto flushed = standard_traffic(machine, small_shape(), {.cache = CacheBetweenKernels::flushed}, Pass::forward);
  EXPECT_EQ(flushed.main_memory().read_bytes, 32 + 64 + 64 + 3 * 128);
}

TEST(StandardTraffic, InPlaceMovesLess) {
  const AttentionShape shape = measured_shape();
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const Traffic textbook = standard_traffic(h200(), shape, {.textbook = true}, pass);
    const Traffic in_place = standard_traffic(h200(), shape, {.textbook = false}, pass);
    EXPECT_LT(in_place.main_memory().total(), textbook.main_memory().total());
    EXPECT_EQ(in_place.flops, textbook.flops);
    EXPECT_LT(in_place.extra_bytes, textbook.extra_bytes);
  }
}

TEST(StandardTraffic, GrowsWithTheSquareAndTiledDoesNot) {
  AttentionShape shape = measured_shape();
  const auto standard = [&] { return standard_traffic(h200(), shape, {}, Pass::forward).main_memory().total(); };
  const auto tiled = [&] { return tiled_traffic(h200(), shape, {}, Pass::forward).main_memory().total(); };
  const double standard_before = standard(), tiled_before = tiled();
  shape.seqlen_q = shape.seqlen_k = 2 * 8192;
  EXPECT_NEAR(standard() / standard_before, 4, 0.05);
  EXPECT_NEAR(tiled() / tiled_before, 2, 0.1);
}

TEST(DirtyLines, ShareOfTheStreamThatTheCacheHolds) {
  const Machine machine = small_machine(100);
  EXPECT_EQ(dirty_at_end(machine, 30, 50), 30);    // all of it fits
  EXPECT_EQ(dirty_at_end(machine, 100, 400), 25);  // a quarter of the last 100 bytes
  EXPECT_EQ(dirty_at_end(machine, 0, 400), 0);
  EXPECT_EQ(dirty_at_end(machine, 0, 0), 0);
}

TEST(PartitionCrossings, SharedLinesCrossOnceToEveryOtherPart) {
  Machine machine = small_machine();
  EXPECT_EQ(partition_crossings(machine, 100, 100), 0);
  machine.cache_partitions = 2;
  EXPECT_EQ(partition_crossings(machine, 100, 60), 130);
}

}  // namespace
}  // namespace onchip::model
