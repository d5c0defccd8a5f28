#include "model/prediction.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace onchip::model {
namespace {

constexpr CacheSizes kCaches{32 << 10, 512 << 10, 16 << 20, 64};

struct Lengths {
  std::int64_t batch = 1, seqlen_q = 512, seqlen_k = 512, heads_q = 4, heads_kv = 4, head_dim = 64;
};

Problem make(Attention args, Pass pass) {
  Problem problem{};
  const Status status = make_problem(args, pass, Use::plan, problem);
  EXPECT_TRUE(status.ok()) << status.message();
  return problem;
}

Attention attention(const Lengths& n) {
  const void* none = nullptr;
  Attention args;
  args.q = contiguous(none, DType::f32, {n.batch, n.seqlen_q, n.heads_q, n.head_dim});
  args.k = args.v = contiguous(none, DType::f32, {n.batch, n.seqlen_k, n.heads_kv, n.head_dim});
  return args;
}

Plan plan_of(Backend backend) {
  Plan plan;
  plan.backend = backend;
  plan.num_threads = 2;
  plan.tile.tile_m = 64;
  plan.tile.tile_n = 64;
  return plan;
}

TEST(Prediction, TiledMovesWhatItMust) {
  const Lengths n;
  const Prediction p = predict(make(attention(n), Pass::forward), plan_of(Backend::cpu), kCaches);
  const double tensor = 512 * 4 * 64 * 4, lse = 4 * 512 * 4;
  EXPECT_DOUBLE_EQ(p.flops, 4.0 * 512 * 512 * 64 * 4);
  EXPECT_DOUBLE_EQ(p.main_memory_write_bytes, tensor + lse);
  EXPECT_DOUBLE_EQ(p.main_memory_read_bytes, 3 * tensor + (tensor + lse));  // stores read their lines first
}

TEST(Prediction, StandardMovesTheScoresOnceTheyLeaveTheCache) {
  Lengths n;
  const auto ratio = [&] {
    const Problem problem = make(attention(n), Pass::forward);
    const Prediction standard = predict(problem, plan_of(Backend::standard), kCaches);
    const Prediction tiled = predict(problem, plan_of(Backend::cpu), kCaches);
    EXPECT_EQ(standard.flops, tiled.flops);
    return standard.main_memory_read_bytes / tiled.main_memory_read_bytes;
  };
  n.seqlen_q = n.seqlen_k = 256;  // scores of 1 MiB
  EXPECT_LT(ratio(), 2);
  n.seqlen_q = n.seqlen_k = 4096;
  EXPECT_GT(ratio(), 20);
}

TEST(Prediction, SequencesOfDifferentLengthsAddUp) {
  const void* none = nullptr;
  std::vector<std::int32_t> ends{0, 100, 100, 400};
  Attention args;
  args.q = args.k = args.v = contiguous(none, DType::f32, {400, 2, 16});
  args.cu_seqlens_q = args.cu_seqlens_k = contiguous(ends.data(), DType::i32, {4});
  const Prediction p = predict(make(args, Pass::forward), plan_of(Backend::cpu), kCaches);
  EXPECT_DOUBLE_EQ(p.flops, 4.0 * 16 * 2 * (100.0 * 100 + 300.0 * 300));
  EXPECT_DOUBLE_EQ(p.main_memory_write_bytes, 400 * 2 * (16 + 1) * 4);
}

TEST(Prediction, BiasIsReadOnceForTheHeadsThatShareIt) {
  const Lengths n{.batch = 2};
  const void* none = nullptr;
  Attention args = attention(n);
  const double before = predict(make(args, Pass::forward), plan_of(Backend::cpu), kCaches).main_memory_read_bytes;
  args.bias = contiguous(none, DType::f32, {1, 4, 512, 512});
  args.mask = contiguous(none, DType::boolean, {2, 1, 512, 512});
  const double with = predict(make(args, Pass::forward), plan_of(Backend::cpu), kCaches).main_memory_read_bytes;
  EXPECT_DOUBLE_EQ(with - before, 512.0 * 512 * (4 * 4 + 2 * 1));
}

TEST(Prediction, BackwardDoesFiveProducts) {
  const Problem problem = make(attention({}), Pass::forward);
  Problem backward = problem;
  backward.pass = Pass::backward;
  EXPECT_DOUBLE_EQ(predict(backward, plan_of(Backend::cpu), kCaches).flops,
                   2.5 * predict(problem, plan_of(Backend::cpu), kCaches).flops);
  for (const Backend backend : {Backend::cpu, Backend::standard})
    EXPECT_GT(predict(backward, plan_of(backend), kCaches).main_memory_read_bytes,
              predict(problem, plan_of(backend), kCaches).main_memory_read_bytes);
}

TEST(Prediction, EmptyProblems) {
  for (const Backend backend : {Backend::cpu, Backend::standard}) {
    const Prediction p = predict(make(attention({.batch = 0}), Pass::forward), plan_of(backend), kCaches);
    EXPECT_EQ(p.flops, 0);
    EXPECT_EQ(p.main_memory_read_bytes, 0);
  }
}

}  // namespace
}  // namespace onchip::model
