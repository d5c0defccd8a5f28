#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/attention.hpp"
#include "support/case.hpp"

namespace onchip::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Every feature at once, small enough for finite differences.
Case small_case(std::uint64_t seed) {
  Rng rng(seed);
  const auto normal = [&] { return rng.normal(); };
  Case c;
  c.q = TensorBuffer(DType::f64, {2, 5, 4, 3});
  c.k = TensorBuffer(DType::f64, {2, 6, 2, 3});
  c.v = TensorBuffer(DType::f64, {2, 6, 2, 2});
  c.bias = TensorBuffer(DType::f64, {1, 4, 5, 6});
  c.mask = TensorBuffer(DType::boolean, {2, 1, 5, 6});
  c.sink = TensorBuffer(DType::f32, {4});
  c.alibi_slopes = TensorBuffer(DType::f32, {2, 4});
  for (TensorBuffer* tensor : {&c.q, &c.k, &c.v, &c.bias, &c.sink, &c.alibi_slopes}) tensor->fill(normal);
  c.mask.fill([&] { return rng.chance(0.7); });
  c.options.softcap = 2.0;
  c.options.softmax_scale = 0.9;
  c.options.window_left = 3;
  c.options.window_right = 2;
  add_results(c, true);
  c.dout.fill(normal);
  return c;
}

/// Σ dout∘o, the function whose gradients the backward pass gives.
double loss(const Case& c) {
  const Results r = exact_attention(c.inputs(), false);
  const std::vector<double> dout = c.dout.values();
  double sum = 0;
  for (std::size_t n = 0; n < dout.size(); ++n) sum += dout[n] * r.o[n];
  return sum;
}

void expect_gradient(Case& c, TensorBuffer& input, const std::vector<double>& gradient, double step, double tolerance) {
  const std::vector<double> values = input.values();
  for (std::size_t n = 0; n < values.size(); ++n) {
    std::vector<double> moved = values;
    moved[n] = values[n] + step;
    input.assign(moved);
    const double above = loss(c), high = input.values()[n];
    moved[n] = values[n] - step;
    input.assign(moved);
    const double below = loss(c), low = input.values()[n];
    EXPECT_NEAR((above - below) / (high - low), gradient[n], tolerance) << "element " << n;
  }
  input.assign(values);
}

TEST(Reference, GradientsAreFiniteDifferences) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Case c = small_case(seed);
    const Results r = exact_attention(c.backward_args(), true);
    expect_gradient(c, c.q, r.dq, 1e-5, 1e-8);
    expect_gradient(c, c.k, r.dk, 1e-5, 1e-8);
    expect_gradient(c, c.v, r.dv, 1e-5, 1e-8);
    expect_gradient(c, c.bias, r.dbias, 1e-5, 1e-8);
    expect_gradient(c, c.sink, r.dsink, 1e-3, 1e-6);
  }
}

/// By hand: two keys with logits ln 1 and ln 3, values 10 and 20.
TEST(Reference, AgreesWithPaperAndPencil) {
  Case c;
  c.q = TensorBuffer(DType::f64, {1, 1, 1, 1});
  c.k = TensorBuffer(DType::f64, {1, 2, 1, 1});
  c.v = TensorBuffer(DType::f64, {1, 2, 1, 1});
  c.q.assign({1});
  c.k.assign({0, std::log(3.0)});
  c.v.assign({10, 20});
  Results r = exact_attention(c.inputs(), false);
  EXPECT_DOUBLE_EQ(r.o[0], 17.5);
  EXPECT_DOUBLE_EQ(r.lse[0], std::log(4.0));
  c.sink = TensorBuffer(DType::f32, {1});
  c.sink.assign({0});
  r = exact_attention(c.inputs(), false);
  EXPECT_DOUBLE_EQ(r.o[0], 14.0);
  EXPECT_DOUBLE_EQ(r.lse[0], std::log(5.0));
}

TEST(Reference, RowsWithoutKeys) {
  Case c;
  c.q = TensorBuffer(DType::f32, {1, 3, 1, 2});
  c.k = TensorBuffer(DType::f32, {1, 1, 1, 2});
  c.v = TensorBuffer(DType::f32, {1, 1, 1, 2});
  for (TensorBuffer* tensor : {&c.q, &c.k, &c.v}) tensor->fill([] { return 1.0; });
  c.options.causal = true;
  Results r = exact_attention(c.inputs(), false);
  EXPECT_EQ(r.o, (std::vector<double>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(r.lse[0], -kInfinity);
  EXPECT_NEAR(r.lse[2], std::sqrt(2.0), 1e-12);
  c.options.alignment = Alignment::top_left;
  r = exact_attention(c.inputs(), false);
  EXPECT_EQ(r.o, (std::vector<double>{1, 1, 1, 1, 1, 1}));
  c.options.alignment = Alignment::bottom_right;
  c.sink = TensorBuffer(DType::f32, {1});
  c.sink.assign({-2});
  r = exact_attention(c.inputs(), false);
  EXPECT_EQ(r.o[0], 0);
  EXPECT_EQ(r.lse[0], -2);
}

/// Packed, paged and batched keys that hold the same values give the same results.
TEST(Reference, LayoutsAgree) {
  Rng rng(7);
  Case batched;
  batched.q = TensorBuffer(DType::f32, {2, 3, 2, 4});
  batched.k = TensorBuffer(DType::f32, {2, 6, 1, 4});
  batched.v = TensorBuffer(DType::f32, {2, 6, 1, 4});
  for (TensorBuffer* tensor : {&batched.q, &batched.k, &batched.v}) tensor->fill([&] { return rng.normal(); });
  batched.options.causal = true;
  const Results expected = exact_attention(batched.inputs(), false);

  Case packed = batched;
  packed.k = TensorBuffer(DType::f32, {12, 1, 4});
  packed.v = TensorBuffer(DType::f32, {12, 1, 4});
  packed.k.assign(batched.k.values());
  packed.v.assign(batched.v.values());
  packed.cu_seqlens_k = TensorBuffer(DType::i32, {3});
  packed.cu_seqlens_k.assign({0, 6, 12});
  EXPECT_EQ(exact_attention(packed.inputs(), false).o, expected.o);
  packed.q = TensorBuffer(DType::f32, {6, 2, 4});
  packed.q.assign(batched.q.values());
  packed.cu_seqlens_q = TensorBuffer(DType::i32, {3});
  packed.cu_seqlens_q.assign({0, 3, 6});
  EXPECT_EQ(exact_attention(packed.inputs(), false).o, expected.o);

  Case paged = batched;
  paged.k = TensorBuffer(DType::f32, {7, 2, 1, 4});
  paged.v = TensorBuffer(DType::f32, {7, 2, 1, 4});
  paged.page_table = TensorBuffer(DType::i32, {2, 3});
  const std::vector<double> pages{4, 0, 6, 2, 5, 1};
  paged.page_table.assign(pages);
  for (auto [to, from] : {std::pair{&paged.k, &batched.k}, std::pair{&paged.v, &batched.v}}) {
    std::vector<double> pool(7 * 8, std::nan(""));
    const std::vector<double> rows = from->values();
    for (std::size_t page = 0; page < 6; ++page)
      std::copy_n(rows.begin() + page * 8, 8, pool.begin() + static_cast<int>(pages[page]) * 8);
    to->assign(pool);
  }
  EXPECT_EQ(exact_attention(paged.inputs(), false).o, expected.o);
}

TEST(Reference, ScalesMultiplyStoredValues) {
  Rng rng(9);
  Case quantised;
  quantised.q = TensorBuffer(DType::f32, {2, 2, 2, 4});
  quantised.q.fill([&] { return rng.normal(); });
  quantised.k = TensorBuffer(DType::i8, {2, 3, 2, 4});
  quantised.v = TensorBuffer(DType::i8, {2, 3, 2, 4});
  for (TensorBuffer* t : {&quantised.k, &quantised.v}) t->fill([&] { return static_cast<double>(rng.integer(-9, 9)); });
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{1}, {2}, {2, 2}, {2, 3, 2}}) {
    quantised.k_scale = TensorBuffer(DType::f32, shape);
    quantised.k_scale.fill([&] { return static_cast<float>(0.1 + rng.uniform()); });
    quantised.v_scale = quantised.k_scale;
    Case plain = quantised;
    plain.k_scale = plain.v_scale = TensorBuffer();
    plain.k = TensorBuffer(DType::f64, {2, 3, 2, 4});
    plain.v = TensorBuffer(DType::f64, {2, 3, 2, 4});
    const std::vector<double> scale = quantised.k_scale.values(), k = quantised.k.values(), v = quantised.v.values();
    std::vector<double> k_values(k), v_values(v);
    for (std::size_t n = 0; n < k.size(); ++n) {
      const std::size_t b = n / 24, j = n / 8 % 3, g = n / 4 % 2;
      const double factor = shape.size() == 3   ? scale[(b * 3 + j) * 2 + g]
                            : shape.size() == 2 ? scale[b * 2 + g]
                                                : scale[shape[0] == 2 ? g : 0];
      k_values[n] *= factor, v_values[n] *= factor;
    }
    plain.k.assign(k_values), plain.v.assign(v_values);
    EXPECT_EQ(exact_attention(quantised.inputs(), false).o, exact_attention(plain.inputs(), false).o);
  }
}

/// A NaN key changes the rows that see it and no others; so does a NaN value.
TEST(Reference, NanStaysInItsRows) {
  Case c = small_case(4);
  const Results clean = exact_attention(c.backward_args(), true);
  std::vector<double> k = c.k.values();
  k[(0 * 6 + 2) * 2 * 3] = std::nan("");  // sequence 0, key 2, KV head 0: query heads 0 and 1
  c.k.assign(k);
  const Results dirty = exact_attention(c.backward_args(), true);
  const Attention args = c.inputs();
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t h = 0; h < 4; ++h) {
        const bool sees = b == 0 && h < 2 && may_see(args, span_of(args, b), h, i, 2);
        const std::size_t at = ((b * 5 + i) * 4 + h) * 2;
        EXPECT_EQ(std::isnan(dirty.o[at]), sees);
        if (!sees) {
          EXPECT_EQ(dirty.o[at], clean.o[at]);
        }
      }
}

/// Standard attention in f32 is close to exact, in bf16 less so, and never equal by construction.
TEST(Reference, StandardAttentionHasTheErrorOfItsType) {
  Rng rng(11);
  for (const auto& [type, low, high] :
       {std::tuple{DType::f32, 1e-9, 1e-5}, {DType::f16, 1e-5, 3e-3}, {DType::bf16, 1e-4, 3e-2}}) {
    Case c;
    for (TensorBuffer* tensor : {&c.q, &c.k, &c.v}) {
      *tensor = TensorBuffer(type, {1, 40, 2, 16});
      tensor->fill([&] { return rng.normal(); });
    }
    add_results(c, true);
    c.dout.fill([&] { return rng.normal(); });
    set_statistics(c);
    const Results exact = exact_attention(c.backward_args(), true),
                  standard = standard_attention(c.backward_args(), true);
    const auto error = [](const std::vector<double>& a, const std::vector<double>& b) {
      double worst = 0;
      for (std::size_t n = 0; n < a.size(); ++n) worst = std::max(worst, std::abs(a[n] - b[n]));
      return worst;
    };
    for (const double e : {error(exact.o, standard.o), error(exact.dq, standard.dq), error(exact.dk, standard.dk),
                           error(exact.dv, standard.dv)}) {
      EXPECT_GT(e, low) << name(type);
      EXPECT_LT(e, high) << name(type);
    }
  }
}

}  // namespace
}  // namespace onchip::test
