// NaN and infinities: what they may reach, and that they reach it.
#include <cmath>
#include <limits>

#include "cpu/backend_test.hpp"
#include "reference/attention.hpp"
#include "support/check_case.hpp"

namespace onchip::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Several tiles in both directions; a window, a mask and the causal edge hide keys from rows.
Case isolation_case(DType type, int variant) {
  Case c = dense_case(type, {2, 210, 330, 4, 2, 40, 24}, 31, true);
  Rng rng(37);
  if (variant == 0) c.options.causal = true;
  if (variant == 1) c.options.window_left = 20, c.options.window_right = 9;
  if (variant == 2) {
    c.mask = TensorBuffer(DType::boolean, {2, 1, 210, 330});
    c.mask.fill([&] { return rng.chance(0.5); });
  }
  return c;
}

class Isolation : public BackendTest {
 protected:
  /// Puts `value` into one element, runs both passes, and holds every result to the reference, NaN positions first.
  /// Rows of o that do not see the element keep the bits they had.
  void expect_isolated(DType type, int variant, TensorBuffer Case::*tensor, double value) {
    if (!computes(type)) return;
    Case clean = isolation_case(type, variant), dirty = isolation_case(type, variant);
    if (!has_backward()) clean.dout = dirty.dout = TensorBuffer();
    std::vector<double> values = (dirty.*tensor).values();
    const std::size_t element = values.size() * 3 / 4 + 3;
    values[element] = value;
    (dirty.*tensor).assign(values);
    for (Case* c : {&clean, &dirty}) {
      if (c->gradients()) set_statistics(*c);
      ASSERT_EQ(run_passes(*c, GetParam()), "");
    }
    // The library GEMM of standard attention cannot skip a pair: it takes another path, with other roundings.
    if (GetParam() != Backend::standard) expect_other_rows_unchanged(clean, dirty);
    for (const std::string& failure : compare_results(dirty, Pass::forward)) ADD_FAILURE() << failure;
    if (!dirty.gradients()) return;
    if (std::isnan(value))
      for (const std::string& failure : compare_results(dirty, Pass::backward)) ADD_FAILURE() << failure;
    else
      expect_first_sequence_unchanged(clean, dirty);
  }

  /// A row whose lse is ∞ has no gradients to compare; the sequence next to it has.
  static void expect_first_sequence_unchanged(const Case& clean, const Case& dirty) {
    for (const TensorBuffer Case::*gradient : {&Case::dq, &Case::dk, &Case::dv}) {
      const std::vector<double> with = (dirty.*gradient).values(), without = (clean.*gradient).values();
      EXPECT_TRUE(std::equal(with.begin(), with.begin() + std::ssize(with) / 2, without.begin()));
    }
  }

  static void expect_other_rows_unchanged(const Case& clean, const Case& dirty) {
    const std::vector<double> expected = exact_attention(dirty.inputs(), false).o;
    const std::vector<double> was = exact_attention(clean.inputs(), false).o;
    const std::vector<double> with = dirty.o.values(), without = clean.o.values();
    const auto dim_v = static_cast<std::size_t>(dirty.v.view().shape[3]);
    std::size_t touched = 0;
    for (std::size_t row = 0; row < with.size(); row += dim_v) {
      const auto same = [&](const std::vector<double>& a, const std::vector<double>& b) {
        return std::equal(a.begin() + row, a.begin() + row + dim_v, b.begin() + row);
      };
      if (same(expected, was))
        ASSERT_TRUE(same(with, without)) << "row " << row / dim_v << " of o changed and does not see the element";
      else
        ++touched;
    }
    EXPECT_GT(touched, 0u);
    EXPECT_LT(touched, with.size() / dim_v / 2);
  }

  void expect_isolated_everywhere(TensorBuffer Case::*tensor, double value) {
    for (const DType type : {DType::f32, DType::bf16, DType::f64})
      for (int variant = 0; variant < 3; ++variant) {
        SCOPED_TRACE(std::string(name(type)) + ", variant " + std::to_string(variant));
        expect_isolated(type, variant, tensor, value);
      }
  }
};

TEST_P(Isolation, NanInAKey) { expect_isolated_everywhere(&Case::k, kNan); }
TEST_P(Isolation, NanInAValue) { expect_isolated_everywhere(&Case::v, kNan); }
TEST_P(Isolation, NanInAQuery) { expect_isolated_everywhere(&Case::q, kNan); }
TEST_P(Isolation, InfinityInAKey) { expect_isolated_everywhere(&Case::k, kInfinity); }
TEST_P(Isolation, InfinityInAValue) { expect_isolated_everywhere(&Case::v, -kInfinity); }

/// Rows without a key are exactly 0 with lse −∞ (the sink, where there is one), and have no gradient.
TEST_P(Isolation, RowsWithoutKeys) {
  const auto empty_rows = [](Case& c, int kind) {
    if (kind == 0) c.options.causal = true;
    if (kind == 1) {
      c.mask = TensorBuffer(DType::boolean, {1, 1, 100, 30});
      c.mask.fill([] { return 0.0; });
    }
    if (kind == 2) {
      c.seqused_k = TensorBuffer(DType::i32, {1});
      c.seqused_k.assign({0});
    }
    if (kind == 3) {
      c.bias = TensorBuffer(DType::f32, {1, 1, 100, 30});
      c.bias.fill([] { return -kInfinity; });
    }
  };
  for (const bool sink : {false, true})
    for (int kind = 0; kind < 4; ++kind) {
      SCOPED_TRACE(kind);
      Case c = dense_case(DType::f32, {1, 100, 30, 2, 1, 24, 24}, 41, false);
      empty_rows(c, kind);
      if (sink) {
        c.sink = TensorBuffer(DType::f32, {2});
        c.sink.assign({-1.5, 88.0});
      }
      add_results(c, has_backward());
      if (c.gradients()) {
        c.dout.fill([] { return 1.0; });
        set_statistics(c);
      }
      ASSERT_EQ(run_passes(c, GetParam()), "");
      const std::vector<double> o = c.o.values(), lse = c.lse.values();
      const std::int64_t empty = kind == 0 ? 70 : 100;  // the first rows
      for (std::int64_t i = 0; i < empty; ++i)
        for (std::int64_t h = 0; h < 2; ++h) {
          EXPECT_EQ(lse[h * 100 + i], !sink ? -kInfinity : h == 0 ? -1.5 : 88.0);
          for (std::int64_t n = 0; n < 24; ++n) {
            EXPECT_EQ(o[(i * 2 + h) * 24 + n], 0);
            if (c.gradients()) {
              EXPECT_EQ(c.dq.values()[(i * 2 + h) * 24 + n], 0);
            }
          }
        }
      if (!c.gradients() || kind == 0) continue;
      for (const TensorBuffer* gradient : {&c.dk, &c.dv, &c.dbias, &c.dsink}) {
        const std::vector<double> values = gradient->values();
        EXPECT_EQ(values, std::vector<double>(values.size(), 0.0));
      }
    }
}

/// A bias of −∞ gives P = 0 and hides nothing: 0·NaN is NaN. One of +∞ gives P = NaN for its key and 0 for the others.
TEST_P(Isolation, InfinityInTheBias) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16})
    for (const double infinity : {-kInfinity, kInfinity})
      for (const double value : {0.5, kNan}) {
        SCOPED_TRACE(std::string(name(type)) + ", bias " + std::to_string(infinity) + ", v " + std::to_string(value));
        Case c = dense_case(type, {1, 40, 50, 2, 1, 16, 16}, 31, has_backward());
        c.bias = TensorBuffer(DType::f32, {1, 1, 40, 50});
        Rng rng(3);
        c.bias.fill([&] { return rng.normal(); });
        std::vector<double> bias = c.bias.values(), v = c.v.values();
        bias[12 * 50 + 20] = infinity, v[20 * 16 + 3] = value;
        c.bias.assign(bias), c.v.assign(v);
        if (c.gradients()) {
          c.dbias = c.bias;
          set_statistics(c);
        }
        ASSERT_EQ(run_passes(c, GetParam()), "");
        for (const std::string& failure : compare_results(c, Pass::forward)) ADD_FAILURE() << failure;
        if (!c.gradients()) continue;
        const Results exact = exact_attention(c.backward_args(), true);
        const auto expect_nan_alike = [](const TensorBuffer& got, const std::vector<double>& wanted,
                                         const char* label) {
          const std::vector<double> values = got.values();
          for (std::size_t n = 0; n < values.size(); ++n)
            ASSERT_EQ(std::isnan(values[n]), std::isnan(wanted[n])) << label << "[" << n << "]";
        };
        expect_nan_alike(c.dq, exact.dq, "dq"), expect_nan_alike(c.dk, exact.dk, "dk");
        expect_nan_alike(c.dv, exact.dv, "dv"), expect_nan_alike(c.dbias, exact.dbias, "dbias");
      }
}

ONCHIP_FOR_EACH_BACKEND(Isolation);

}  // namespace
}  // namespace onchip::test
