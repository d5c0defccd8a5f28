// The implementation that a plan names is the one that ran: its results have the bits of that implementation, called
// directly, and no other implementation gives the same bits.
#include <gtest/gtest.h>

#include <map>

#include "support/cases.hpp"
#include "support/run.hpp"

namespace onchip::test {
namespace {

Case forced_case(bool few_queries, bool gradients) {
  const Shape shape = few_queries ? Shape{2, 2, 3000, 4, 2, 64, 64} : Shape{2, 150, 200, 4, 2, 64, 64};
  Case c = dense_case(DType::f32, shape, 5, gradients);
  if (gradients) set_statistics(c);
  return c;
}

void expect_named_one_ran(Pass pass, bool few_queries) {
  Case c = forced_case(few_queries, pass == Pass::backward);
  std::map<std::string, std::vector<std::vector<std::byte>>> bits;
  for (const Implementation* implementation : implementations()) {
    Problem problem;
    const Attention args = pass == Pass::forward ? c.forward_args() : c.backward_args();
    if (implementation->pass != pass || !make_problem(args, pass, Use::run, problem).ok()) continue;
    if (implementation->reject(problem)) continue;
    const Outcome outcome =
        run_guarded(c, pass, [&](const Attention& a, Pass p) { return run_implementation(*implementation, a, p); });
    ASSERT_EQ(outcome.error, "") << implementation->name;
    bits[implementation->name] = result_bytes(c);
  }
  for (auto one = bits.begin(); one != bits.end(); ++one)
    for (auto other = std::next(one); other != bits.end(); ++other)
      EXPECT_FALSE(one->second == other->second) << one->first << " and " << other->first << " cannot be told apart";
  for (const Backend backend : {Backend::automatic, Backend::cpu, Backend::standard}) {
    if (backend != Backend::automatic && !has_backend(backend, pass)) continue;
    c.options.backend = backend;
    const Outcome outcome = run_guarded(c, pass, run_public);
    ASSERT_EQ(outcome.error, "");
    EXPECT_TRUE(bits.count(outcome.plan.implementation)) << outcome.plan.implementation;
    EXPECT_TRUE(bits[outcome.plan.implementation] == result_bytes(c))
        << "the plan named " << outcome.plan.implementation << ", something else ran";
  }
}

TEST(ForcedImplementation, ForwardOfManyQueries) { expect_named_one_ran(Pass::forward, false); }
TEST(ForcedImplementation, ForwardOfFewQueries) { expect_named_one_ran(Pass::forward, true); }
TEST(ForcedImplementation, Backward) { expect_named_one_ran(Pass::backward, false); }

/// Each implementation can be named as the least that will do, and everything below it is then refused.
TEST(ForcedImplementation, StrictModeKnowsEveryName) {
  for (const Implementation* wanted : implementations()) {
    Case c = forced_case(false, true);
    c.options.at_least = wanted->name;
    Attention args = wanted->pass == Pass::forward ? c.forward_args() : c.backward_args();
    args.backend = Backend::standard;
    if (wanted->backend == Backend::standard)
      EXPECT_EQ(plan(args, wanted->pass).implementation, wanted->name);
    else
      EXPECT_THROW(static_cast<void>(plan(args, wanted->pass)), Error) << wanted->name;
  }
}

}  // namespace
}  // namespace onchip::test
