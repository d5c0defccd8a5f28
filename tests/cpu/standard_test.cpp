// Standard attention on cases small enough to be computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "onchip/onchip.hpp"
#include "support/owned_tensor.hpp"

namespace onchip::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// One head, D = Dv = 1: q = (1, 2), k = (0, ln 3), v = (4, 8), so the rows weigh their keys 1:3 and 1:9.
struct TwoByTwo {
  explicit TwoByTwo(DType type)
      : q(type, {1, 2, 1, 1}), k(q), v(q), o(q), dout(q), dq(q), dk(q), dv(q), lse(type, {1, 1, 2}) {
    set(q, 1, 2), set(k, 0, std::log(3.0)), set(v, 4, 8), set(dout, 1, 1);
    args.q = q.view, args.k = k.view, args.v = v.view, args.o = o.view, args.lse = lse.view;
    args.backend = Backend::standard;
  }
  static void set(OwnedTensor& t, double a, double b) { t.set(0, a), t.set(1, b); }
  void run_backward() {
    args.dout = dout.view, args.dq = dq.view, args.dk = dk.view, args.dv = dv.view;
    backward(args);
  }

  OwnedTensor q, k, v, o, dout, dq, dk, dv, lse;
  Attention args;
};

TEST(Standard, IsNamedInThePlan) {
  TwoByTwo f32(DType::f32);
  EXPECT_EQ(plan(f32.args, Pass::forward).implementation, "standard_forward");
  EXPECT_EQ(plan(f32.args, Pass::backward).implementation, "standard_backward");
}

TEST(Standard, CountsTheScoresInItsWorkspace) {
  Attention args;
  args.q = args.k = args.v = contiguous(static_cast<const void*>(nullptr), DType::f32, {2, 1024, 3, 64});
  args.backend = Backend::standard;
  constexpr std::size_t kScoreBytes = 2 * 3 * 1024 * 1024 * sizeof(float);
  EXPECT_GE(plan(args, Pass::forward).workspace_bytes, kScoreBytes);
  EXPECT_LT(plan(args, Pass::forward).workspace_bytes, kScoreBytes * 3 / 2);
  EXPECT_GE(plan(args, Pass::backward).workspace_bytes, 2 * kScoreBytes);
}

TEST(Standard, ComputesTwoRowsOfTwoKeys) {
  TwoByTwo f64(DType::f64);
  EXPECT_EQ(forward(f64.args).implementation, "standard_forward");
  EXPECT_NEAR(f64.o.get(0), 0.25 * 4 + 0.75 * 8, 1e-14);
  EXPECT_NEAR(f64.o.get(1), 0.1 * 4 + 0.9 * 8, 1e-14);
  EXPECT_NEAR(f64.lse.get(0), std::log(4.0), 1e-14);
  EXPECT_NEAR(f64.lse.get(1), std::log(10.0), 1e-14);
  f64.run_backward();
  // ds of the two keys is ∓p₀p₁·(8 − 4): 0.75 in the first row, 0.36 in the second.
  EXPECT_NEAR(f64.dq.get(0), 0.75 * std::log(3.0), 1e-14);
  EXPECT_NEAR(f64.dq.get(1), 0.36 * std::log(3.0), 1e-14);
  EXPECT_NEAR(f64.dk.get(0), -0.75 - 2 * 0.36, 1e-14);
  EXPECT_NEAR(f64.dk.get(1), 0.75 + 2 * 0.36, 1e-14);
  EXPECT_NEAR(f64.dv.get(0), 0.35, 1e-14);
  EXPECT_NEAR(f64.dv.get(1), 1.65, 1e-14);
}

/// Causal: the first query does not see the second key, whose NaN must not reach it. The first key's gradients hear of
/// the NaN through the second query, which sees both.
TEST(Standard, KeepsNaNAwayFromRowsThatDoNotSeeIt) {
  TwoByTwo f32(DType::f32);
  f32.args.causal = true;
  f32.v.set(1, kNaN);
  forward(f32.args);
  EXPECT_EQ(f32.o.get(0), 4);
  EXPECT_EQ(f32.lse.get(0), 0);
  EXPECT_TRUE(std::isnan(f32.o.get(1)));
  f32.run_backward();
  EXPECT_EQ(f32.dq.get(0), 0);
  EXPECT_TRUE(std::isnan(f32.dq.get(1)));

  f32.v.set(1, 8);
  f32.k.set(1, std::numeric_limits<double>::infinity());
  forward(f32.args);
  EXPECT_EQ(f32.o.get(0), 4);
  f32.run_backward();
  EXPECT_EQ(f32.dq.get(0), 0);
}

/// The first query sees no key: NaN in its q and dout is nobody's business.
TEST(Standard, EmptyRowsGiveAndTakeNothing) {
  TwoByTwo f32(DType::f32);
  OwnedTensor mask(DType::boolean, {1, 1, 2, 2});
  mask.memory = {std::byte{0}, std::byte{0}, std::byte{1}, std::byte{1}};
  mask.view.data = mask.memory.data();
  OwnedTensor sink(DType::f32, {1}), dsink(DType::f32, {1});
  sink.set(0, 0.0);
  f32.args.mask = mask.view, f32.args.sink = sink.view, f32.args.dsink = dsink.view;
  f32.q.set(0, kNaN);
  f32.dout.set(0, kNaN);
  forward(f32.args);
  EXPECT_EQ(f32.o.get(0), 0);
  EXPECT_EQ(f32.lse.get(0), 0);  // the sink
  EXPECT_NEAR(f32.o.get(1), (4 + 9 * 8) / 11.0, 1e-5);
  f32.run_backward();
  EXPECT_EQ(f32.dq.get(0), 0);
  EXPECT_NEAR(f32.dv.get(0), 1 / 11.0, 1e-6);
  EXPECT_NEAR(f32.dv.get(1), 9 / 11.0, 1e-6);
  EXPECT_TRUE(std::isfinite(f32.dk.get(0)));
  EXPECT_NEAR(dsink.get(0), -(4 + 9 * 8) / 121.0, 1e-6);
}

}  // namespace
}  // namespace onchip::test
