// Random composition: any legal combination of features on every backend, against the float64 reference.
//
//   random_tests --seed N      one case alone (or ONCHIP_SEED=N)
//   ONCHIP_CASES=N             cases in each shard of the fixed list and from the fresh seed
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <random>

#include "random/generator.hpp"
#include "reference/attention.hpp"
#include "support/check_case.hpp"
#include "support/run.hpp"

namespace onchip::test {
namespace {

constexpr int kShards = 20;
constexpr std::uint64_t kShardSpacing = 1'000'000;  // seeds of shard n begin at n·kShardSpacing

std::uint64_t g_only_seed = 0;

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

std::uint64_t cases_per_shard() {
  const char* given = std::getenv("ONCHIP_CASES");
  return given ? number(given) : ONCHIP_CASES_PER_SHARD;
}

void run_seed(std::uint64_t seed) {
  Case c = draw_case(seed);
  const std::string description = describe(c);
  for (const std::string& failure : check_case(c))
    ADD_FAILURE() << "seed " << seed << ": " << failure << "\n  " << description;
}

class RandomCases : public ::testing::TestWithParam<int> {};

TEST_P(RandomCases, HoldTheErrorBound) {
  std::cout << cases_per_shard() << " cases a shard, " << kShards << " shards\n";
  const std::uint64_t first = static_cast<std::uint64_t>(GetParam()) * kShardSpacing;
  for (std::uint64_t n = 0; n < cases_per_shard(); ++n) run_seed(first + n);
}

INSTANTIATE_TEST_SUITE_P(Shard, RandomCases, ::testing::Range(1, kShards + 1));

TEST(RandomCasesFresh, HoldTheErrorBound) {
  const std::uint64_t seed = (std::uint64_t{std::random_device{}()} << 20) + (std::uint64_t{1} << 52);
  std::cout << "fresh seed " << seed << ", " << cases_per_shard() << " cases from it on\n";
  for (std::uint64_t n = 0; n < cases_per_shard(); ++n) run_seed(seed + n);
}

TEST(RandomCasesKnown, HoldTheErrorBound) {
  std::ifstream file(ONCHIP_KNOWN_SEEDS);
  ASSERT_TRUE(file) << ONCHIP_KNOWN_SEEDS;
  std::string line;
  while (std::getline(file, line))
    if (!line.empty() && line[0] != '#') run_seed(number(line.c_str()));
}

TEST(RandomCasesAlone, HoldTheErrorBound) {
  if (g_only_seed == 0) GTEST_SKIP() << "no --seed given";
  Case c = draw_case(g_only_seed);
  std::cout << describe(c) << "\n";
  run_seed(g_only_seed);
}

class RandomBackend : public ::testing::TestWithParam<std::tuple<Backend, Pass>> {};

/// Says by name which backends the cases above could not run on.
TEST_P(RandomBackend, IsThere) { ONCHIP_SKIP_WITHOUT(std::get<0>(GetParam()), std::get<1>(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomBackend,
                         ::testing::Combine(::testing::Values(Backend::cpu, Backend::standard),
                                            ::testing::Values(Pass::forward, Pass::backward)),
                         [](const auto& parameters) {
                           return std::string(backend_name(std::get<0>(parameters.param))) +
                                  (std::get<1>(parameters.param) == Pass::forward ? "_forward" : "_backward");
                         });

/// The generator itself: the same seed gives the same case.
TEST(RandomGenerator, IsDeterministic) {
  for (std::uint64_t seed = 1; seed < 50; ++seed) {
    Case a = draw_case(seed), b = draw_case(seed);
    EXPECT_EQ(describe(a), describe(b));
    EXPECT_EQ(a.q.bytes(), b.q.bytes());
    EXPECT_EQ(a.k.bytes(), b.k.bytes());
  }
}

TEST(RandomGenerator, DrawsLegalCases) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Case c = draw_case(seed);
    Problem problem;
    Status status = make_problem(c.forward_args(), Pass::forward, Use::run, problem);
    EXPECT_TRUE(status.ok()) << "seed " << seed << ": " << status.message() << "\n  " << describe(c);
    if (!c.gradients()) continue;
    status = make_problem(c.backward_args(), Pass::backward, Use::run, problem);
    EXPECT_TRUE(status.ok()) << "seed " << seed << ": " << status.message() << "\n  " << describe(c);
  }
}

/// Among the seeds of one shard, no feature is missing.
TEST(RandomGenerator, DrawsEveryFeature) {
  std::map<std::string, int> seen;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Case c = draw_case(seed);
    const Attention a = c.inputs();
    const std::pair<const char*, bool> features[] = {
        {"packed q", a.cu_seqlens_q.present()},
        {"packed k", a.cu_seqlens_k.present()},
        {"paged", a.page_table.present()},
        {"packed q with paged k", a.cu_seqlens_q.present() && a.page_table.present()},
        {"packed q with batched k", a.cu_seqlens_q.present() && a.k.rank == 4 && !a.page_table.present()},
        {"batched q with packed k", a.q.rank == 4 && a.cu_seqlens_k.present()},
        {"seqused_k", a.seqused_k.present()},
        {"bias", a.bias.present()},
        {"mask", a.mask.present()},
        {"alibi_slopes", a.alibi_slopes.present()},
        {"sink", a.sink.present()},
        {"softcap", a.softcap > 0},
        {"softmax_scale", a.softmax_scale.has_value()},
        {"window", a.window_left >= 0 && a.window_right >= 0},
        {"causal", a.causal},
        {"causal and window", a.causal && a.window_left >= 0},
        {"top_left", a.alignment == Alignment::top_left},
        {"gradients", c.gradients()},
        {"gradients of pages", c.gradients() && a.page_table.present()},
        {"dbias", c.dbias.present()},
        {"dsink", c.dsink.present()},
        {"no lse", !c.lse.present()},
        {"queries without keys", element_count(a.q) > 0 && element_count(a.k) == 0},
        {"no queries", element_count(a.q) == 0},
        {"scale per token", a.k_scale.present() && a.k_scale.rank == a.k.rank - 1},
        {"scale per batch and head", a.k_scale.present() && a.k_scale.rank == 2 && a.k.rank == 4},
        {"other head_dim_v", a.v.shape[a.v.rank - 1] != a.q.shape[a.q.rank - 1]},
    };
    for (const auto& [feature, present] : features) seen[feature] += present;
    ++seen[std::string("q ") + name(a.q.dtype)];
    ++seen[std::string("k ") + name(a.k.dtype)];
  }
  for (const char* type : {"q f64", "q f32", "q bf16", "q f16", "q e4m3", "k i8", "k e4m3", "k e5m2"}) seen[type] += 0;
  for (const auto& [feature, count] : seen) EXPECT_GE(count, 3) << feature;
}

}  // namespace
}  // namespace onchip::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const char* seed = std::getenv("ONCHIP_SEED");
  for (int n = 1; n + 1 < argc; ++n)
    if (std::strcmp(argv[n], "--seed") == 0) seed = argv[n + 1];
  if (seed) {
    onchip::test::g_only_seed = onchip::test::number(seed);
    GTEST_FLAG_SET(filter, "RandomCasesAlone.*");
  }
  return RUN_ALL_TESTS();
}
