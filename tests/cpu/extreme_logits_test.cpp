// Logits that trip an online softmax: maxima that grow from tile to tile, that come last, that are huge and all alike.
#include <cmath>
#include <functional>
#include <limits>

#include "cpu/backend_test.hpp"
#include "reference/attention.hpp"
#include "support/check_case.hpp"

namespace onchip::test {
namespace {

constexpr std::int64_t kKeys = 700, kQueries = 70;

class ExtremeLogits : public BackendTest {
 protected:
  /// D = 1 and scale 1, so that the logit of key j is exactly q·k_j: signs of q alternate from row to row.
  /// The backward pass knows the denominator from lse alone: next to a logit of 2^100 nothing is left of it.
  void expect_exact(DType type, const std::function<double(std::int64_t)>& logit, bool both_signs = false,
                    bool backward_too = true) {
    if (!computes(type)) return;
    for (const std::int64_t dim : {1, 32})
      for (const std::int64_t queries : {std::int64_t{1}, kQueries}) {
        SCOPED_TRACE(std::string(name(type)) + ", D " + std::to_string(dim) + ", queries " + std::to_string(queries));
        Case c = dense_case(type, {1, queries, kKeys, 2, 1, dim, 16}, 43, backward_too && has_backward());
        c.options.softmax_scale = 1.0;
        std::vector<double> q(static_cast<std::size_t>(queries * 2 * dim)), k(static_cast<std::size_t>(kKeys * dim));
        for (std::int64_t i = 0; i < queries * 2; ++i) q[i * dim] = both_signs && i % 2 ? -1.0 : 1.0;
        for (std::int64_t j = 0; j < kKeys; ++j) k[j * dim] = logit(j);
        c.q.assign(q), c.k.assign(k);
        if (c.gradients()) set_statistics(c);
        ASSERT_EQ(run_passes(c, GetParam()), "");
        for (const Pass pass : {Pass::forward, Pass::backward}) {
          if (pass == Pass::backward && !c.gradients()) continue;
          for (const std::string& failure : compare_results(c, pass)) ADD_FAILURE() << failure;
        }
      }
  }
};

TEST_P(ExtremeLogits, MaximumGrowsTileByTile) {
  const auto growing = [](double factor) {
    return
        [factor](std::int64_t j) { return std::pow(factor, static_cast<double>(j / 64)) * (j % 64 == 63 ? 1.0 : 0.5); };
  };
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) expect_exact(type, growing(0x1p10), true, false);
  expect_exact(DType::f64, growing(0x1p80), true, false);  // up to 2^800
  expect_exact(
      DType::f64, [](std::int64_t j) { return std::ldexp(1.0, 200 * static_cast<int>(j / 175)); }, true, false);
}

TEST_P(ExtremeLogits, LargestLogitComesLast) {
  for (const DType type : {DType::f64, DType::f32, DType::f16})
    for (const double peak : {12.0, 90.0, 1000.0, 60000.0})
      expect_exact(type, [&](std::int64_t j) { return j == kKeys - 1 ? peak : static_cast<double>(j % 5); });
}

TEST_P(ExtremeLogits, AllAlike) {
  for (const DType type : {DType::f64, DType::f32, DType::f16})
    for (const double logit : {-60000.0, 60000.0, 0.0}) expect_exact(type, [&](std::int64_t) { return logit; });
}

/// Far beyond what products with log2(e) may round away, up to the largest number of the type, or on a GPU of the type
/// over log2(e).
TEST_P(ExtremeLogits, AllAlikeAndHuge) {
  const double largest = GetParam() == Backend::cuda ? -0x1.6p127 : -0x1.fffffep127;
  for (const double logit : {-1e10, 1e10, -1e20, 1e30, -3e37, largest})
    for (const DType type : {DType::f64, DType::f32, DType::bf16})
      expect_exact(
          type, [&](std::int64_t) { return logit; }, false, false);
}

/// lse then says nothing of how many keys there are, and gradients have to find out themselves.
TEST_P(ExtremeLogits, AllAlikeAndHugeBackward) {
  if (!has_backward()) GTEST_SKIP() << "no backward pass";
  for (const double logit : {-1e8, -1e10, 1e10})
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::string(name(type)) + ", logit " + std::to_string(logit));
      Case c = dense_case(type, {1, kQueries, kKeys, 2, 1, 8, 16}, 43, true);
      c.q.fill([&] { return 0.0; }), c.k.fill([&] { return 0.0; });
      c.bias = TensorBuffer(DType::f32, {1, 1, kQueries, kKeys});
      c.bias.fill([&] { return logit; });
      c.dbias = c.bias;
      set_statistics(c);
      ASSERT_EQ(run_passes(c, GetParam()), "");
      const Results exact = exact_attention(c.backward_args(), true);
      const double unit = type == DType::f32 ? 2e-5 : 0x1p-7;
      const std::vector<double> dv = c.dv.values(), dbias = c.dbias.values();
      for (std::size_t n = 0; n < dv.size(); ++n) ASSERT_NEAR(dv[n], exact.dv[n], unit * (1 + std::abs(exact.dv[n])));
      for (std::size_t n = 0; n < dbias.size(); ++n) ASSERT_NEAR(dbias[n], exact.dbias[n], unit / kKeys * 16);
    }
}

TEST_P(ExtremeLogits, BothSigns) {
  for (const DType type : {DType::f64, DType::f32, DType::f16})
    expect_exact(
        type, [](std::int64_t j) { return j % 3 ? -60000.0 : 60000.0; }, true);
}

/// Far from zero, a few units apart: the differences decide.
TEST_P(ExtremeLogits, CloseTogetherAndFarFromZero) {
  for (const DType type : {DType::f64, DType::f32})
    expect_exact(type, [](std::int64_t j) { return -60000.0 + static_cast<double>(j % 7) * 0.5; });
}

/// The keys of the first tiles are hidden, from some rows or from all.
TEST_P(ExtremeLogits, FirstTilesMasked) {
  for (const std::int64_t hidden : {64, 300, 699}) {
    Case c = dense_case(DType::f32, {1, kQueries, kKeys, 1, 1, 32, 32}, 47, false);
    c.mask = TensorBuffer(DType::boolean, {1, 1, kQueries, kKeys});
    std::vector<double> keep(static_cast<std::size_t>(kQueries * kKeys));
    for (std::int64_t i = 0; i < kQueries; ++i)
      for (std::int64_t j = 0; j < kKeys; ++j) keep[i * kKeys + j] = j >= hidden || i % 9 == 4;
    c.mask.assign(keep);
    ASSERT_EQ(run_passes(c, GetParam()), "");
    for (const std::string& failure : compare_results(c, Pass::forward)) ADD_FAILURE() << failure;
  }
}

ONCHIP_FOR_EACH_BACKEND(ExtremeLogits);

}  // namespace
}  // namespace onchip::test
