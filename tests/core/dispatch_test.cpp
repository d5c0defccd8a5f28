// The dispatcher over a list of its own: the implementation that the plan names is the one that runs.
#include "core/dispatch.hpp"

#include <gtest/gtest.h>

#include <array>

#include "support/case.hpp"

namespace onchip::test {
namespace {

/// Accepts problems of up to kMaxHeadDim, and writes down that it ran in the first element of o.
template <int number, Backend backend_of_it, std::int64_t max_head_dim, Pass pass_of_it = Pass::forward>
struct Fake {
  static std::optional<std::string> reject(const Problem& problem) {
    if (problem.head_dim <= max_head_dim) return std::nullopt;
    return "head dimension above " + std::to_string(max_head_dim);
  }
  static void configure(const Problem&, Plan& plan) { plan.workspace_bytes = 64 * number; }
  static Status run(const Problem& problem, const Plan&, std::span<std::byte> workspace) {
    EXPECT_EQ(workspace.size(), 64u * number);
    *static_cast<float*>(problem.args.o.data) = number;
    return {};
  }
  static constexpr std::array<const char*, 4> kNames{"", "first", "second", "third"};
  static constexpr Implementation kValue{kNames[number], backend_of_it, pass_of_it, reject, configure, run};
};

constexpr const Implementation* kFakes[] = {&Fake<1, Backend::cuda, 8>::kValue, &Fake<2, Backend::cpu, 16>::kValue,
                                            &Fake<3, Backend::standard, 32>::kValue};

struct Result {
  Status status;
  Plan plan;
  int ran = 0;
};

Result run_fakes(std::int64_t head_dim, Backend backend = Backend::automatic, const std::string& at_least = "",
                 std::size_t workspace_bytes = 256) {
  Case c;
  c.q = TensorBuffer(DType::f32, {1, 1, 1, head_dim});
  c.k = c.v = c.q;
  c.options.backend = backend;
  c.options.at_least = at_least;
  add_results(c, false);
  c.o.fill([] { return 0.0; });
  Result result;
  Problem problem;
  EXPECT_TRUE(make_problem(c.forward_args(), Pass::forward, Use::run, problem).ok());
  alignas(64) std::array<std::byte, 256> workspace;
  result.status = run(problem, std::span(workspace).first(workspace_bytes), result.plan, kFakes);
  result.ran = static_cast<int>(c.o.values()[0]);
  return result;
}

TEST(Dispatch, TheFirstThatAcceptsRuns) {
  for (const auto& [head_dim, number, name] :
       {std::tuple{8, 1, "first"}, {9, 2, "second"}, {16, 2, "second"}, {17, 3, "third"}}) {
    const Result result = run_fakes(head_dim);
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(result.plan.implementation, name);
    EXPECT_EQ(result.ran, number);
    EXPECT_EQ(result.plan.rejections.size(), 2u);
  }
}

TEST(Dispatch, TheBackendAskedForRuns) {
  const Result result = run_fakes(8, Backend::standard);
  EXPECT_EQ(result.plan.implementation, "third");
  EXPECT_EQ(result.plan.backend, Backend::standard);
  EXPECT_EQ(result.ran, 3);
  EXPECT_EQ(result.plan.rejections[0].implementation, "first");
  EXPECT_EQ(result.plan.rejections[0].reason, "backend standard was asked for");
}

TEST(Dispatch, EveryRejectionHasItsReason) {
  const Result result = run_fakes(12);
  ASSERT_EQ(result.plan.rejections.size(), 2u);
  EXPECT_EQ(result.plan.rejections[0].reason, "head dimension above 8");
  EXPECT_EQ(result.plan.rejections[1].reason, "ranks below second, which accepts the problem");
}

TEST(Dispatch, NothingRunsWhenNothingAccepts) {
  const Result result = run_fakes(33);
  EXPECT_EQ(result.status.code(), StatusCode::unsupported);
  EXPECT_NE(result.status.message().find("third: head dimension above 32"), std::string::npos);
  EXPECT_EQ(result.ran, 0);
}

TEST(Dispatch, StrictModeRefusesToFallBelowTheNamedOne) {
  EXPECT_EQ(run_fakes(8, Backend::automatic, "second").ran, 1);
  EXPECT_EQ(run_fakes(16, Backend::automatic, "second").ran, 2);
  for (const Result& below : {run_fakes(17, Backend::automatic, "second"), run_fakes(8, Backend::standard, "second")}) {
    EXPECT_EQ(below.status.code(), StatusCode::unsupported);
    EXPECT_NE(below.status.message().find("at_least: second was asked for, but third would run"), std::string::npos)
        << below.status.message();
    EXPECT_EQ(below.ran, 0);
  }
  const Result unknown = run_fakes(8, Backend::automatic, "fourth");
  EXPECT_EQ(unknown.status.code(), StatusCode::invalid_argument);
  EXPECT_NE(unknown.status.message().find("'fourth', expected one of first, second, third"), std::string::npos);
}

TEST(Dispatch, RefusesASmallWorkspace) {
  const Result result = run_fakes(16, Backend::automatic, "", 127);
  EXPECT_EQ(result.status.code(), StatusCode::workspace_too_small);
  EXPECT_NE(result.status.message().find("workspace: 127 bytes, expected at least 128 for second"), std::string::npos);
  EXPECT_EQ(result.ran, 0);
}

TEST(Dispatch, ImplementationsOfTheOtherPassAreNotLookedAt) {
  static constexpr const Implementation* kList[] = {&Fake<1, Backend::cpu, 64, Pass::backward>::kValue,
                                                    &Fake<2, Backend::cpu, 64>::kValue};
  Case c;
  c.q = TensorBuffer(DType::f32, {1, 1, 1, 4});
  c.k = c.v = c.q;
  Problem problem;
  ASSERT_TRUE(make_problem(c.inputs(), Pass::forward, Use::plan, problem).ok());
  Plan plan;
  ASSERT_TRUE(make_plan(problem, plan, kList).ok());
  EXPECT_EQ(plan.implementation, "second");
  EXPECT_TRUE(plan.rejections.empty());
}

}  // namespace
}  // namespace onchip::test
