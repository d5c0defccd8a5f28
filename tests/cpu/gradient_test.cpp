// Gradients against finite differences of the forward pass, both through the public interface, in float64.
#include <cmath>
#include <functional>

#include "cpu/backend_test.hpp"
#include "reference/attention.hpp"

namespace onchip::test {
namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;
constexpr int kElements = 10;  // of each tensor

struct Feature {
  const char* name;
  std::function<void(Case&, Rng&)> add;
  Shape shape{2, 5, 9, 4, 2, 7, 5};
};

const std::vector<Feature>& features() {
  static const auto bias = [](Case& c, Rng& rng, std::vector<std::int64_t> shape) {
    c.bias = TensorBuffer(DType::f64, shape);
    c.bias.fill([&] { return rng.normal(); });
  };
  static const std::vector<Feature> list{
      {"plain", [](Case&, Rng&) {}},
      {"causal", [](Case& c, Rng&) { c.options.causal = true; }},
      {"causal with rows without keys", [](Case& c, Rng&) { c.options.causal = true; }, {1, 12, 5, 2, 1, 8, 8}},
      {"window", [](Case& c, Rng&) { c.options.window_left = 2, c.options.window_right = 1; }},
      {"top left", [](Case& c, Rng&) { c.options.causal = true, c.options.alignment = Alignment::top_left; }},
      {"softcap", [](Case& c, Rng&) { c.options.softcap = 1.5; }},
      {"scale", [](Case& c, Rng&) { c.options.softmax_scale = -0.7; }},
      {"bias",
       [](Case& c, Rng& rng) {
         bias(c, rng, {2, 4, 5, 9});
       }},
      {"broadcast bias",
       [](Case& c, Rng& rng) {
         bias(c, rng, {1, 1, 5, 9});
       }},
      {"bias over heads",
       [](Case& c, Rng& rng) {
         bias(c, rng, {1, 4, 5, 9});
       }},
      {"bias after softcap",
       [](Case& c, Rng& rng) {
         bias(c, rng, {2, 1, 5, 9}), c.options.softcap = 2.0;
       }},
      {"sink",
       [](Case& c, Rng& rng) {
         c.sink = TensorBuffer(DType::f32, {4});
         c.sink.fill([&] { return rng.normal(); });
       }},
      {"alibi",
       [](Case& c, Rng& rng) {
         c.alibi_slopes = TensorBuffer(DType::f32, {2, 4});
         c.alibi_slopes.fill([&] { return rng.uniform(); });
       }},
      {"mask",
       [](Case& c, Rng& rng) {
         c.mask = TensorBuffer(DType::boolean, {2, 1, 5, 9});
         c.mask.fill([&] { return rng.chance(0.6); });
       }},
      {"seqused_k",
       [](Case& c, Rng&) {
         c.seqused_k = TensorBuffer(DType::i32, {2});
         c.seqused_k.assign({4, 0});
       }},
      {"pages, one of them shared",
       [](Case& c, Rng& rng) {
         c.k = TensorBuffer(DType::f64, {5, 2, 2, 7});
         c.v = TensorBuffer(DType::f64, {5, 2, 2, 5});
         for (TensorBuffer* t : {&c.k, &c.v}) t->fill([&] { return rng.normal(); });
         c.page_table = TensorBuffer(DType::i32, {2, 3});
         c.page_table.assign({3, 0, 4, 3, 1, 1});
       }},
      {"several tiles", [](Case& c, Rng&) { c.options.causal = true; }, {1, 300, 450, 2, 1, 16, 16}},
  };
  return list;
}

class Gradients : public BackendTest {
 protected:
  /// Σ dout∘o.
  double loss(Case& c) {
    const Outcome outcome = run_guarded(c, Pass::forward, run_public);
    EXPECT_EQ(outcome.error, "");
    const std::vector<double> o = c.o.values(), dout = c.dout.values();
    double sum = 0;
    for (std::size_t n = 0; n < o.size(); ++n) sum += o[n] * dout[n];
    return sum;
  }

  void expect_differences(Case& c, TensorBuffer& input, const TensorBuffer& gradient, Rng& rng) {
    if (!input.present()) return;
    const double step = input.view().dtype == DType::f64 ? kStep : 1e-3;
    const std::vector<double> values = input.values(), gradients = gradient.values();
    for (int n = 0; n < kElements; ++n) {
      const auto at = static_cast<std::size_t>(rng.integer(0, std::ssize(values) - 1));
      std::vector<double> moved = values;
      moved[at] = values[at] + step;
      input.assign(moved);
      const double high = input.values()[at], above = loss(c);
      moved[at] = values[at] - step;
      input.assign(moved);
      const double low = input.values()[at], below = loss(c);
      const double tolerance = step > kStep ? 1e-5 : kTolerance;  // error grows with the step squared
      EXPECT_NEAR((above - below) / (high - low), gradients[at], tolerance * (1 + std::abs(gradients[at])))
          << "element " << at;
    }
    input.assign(values);
  }
};

TEST_P(Gradients, AreFiniteDifferences) {
  if (!has_backward()) GTEST_SKIP() << backend_name(GetParam()) << " has no backward pass";
  for (const Feature& feature : features()) {
    SCOPED_TRACE(feature.name);
    Rng rng(23);
    Case c = dense_case(DType::f64, feature.shape, 29, false);
    feature.add(c, rng);
    add_results(c, true);
    c.dout.fill([&] { return rng.normal(); });
    c.options.backend = GetParam();
    loss(c);
    c.o_in.assign(c.o.values());
    c.lse_in.assign(c.lse.values());
    const Outcome outcome = run_guarded(c, Pass::backward, run_public);
    ASSERT_EQ(outcome.error, "");
    expect_differences(c, c.q, c.dq, rng);
    expect_differences(c, c.k, c.dk, rng);
    expect_differences(c, c.v, c.dv, rng);
    expect_differences(c, c.bias, c.dbias, rng);
    expect_differences(c, c.sink, c.dsink, rng);
  }
}

/// Gradients over some of the keys start from o and lse over all of them, and add up. `amplitude`: of q, so that logits
/// are ordinary or large.
TEST_P(Gradients, OfPartsOfTheKeysAddUp) {
  ONCHIP_SKIP_WITHOUT(GetParam(), Pass::backward);
  constexpr std::int64_t kKeys = 45, kFirst = 20;
  for (const DType type : {DType::f32, DType::bf16})
    for (const double amplitude : {1.0, 60.0}) {
      SCOPED_TRACE(std::string(name(type)) + ", amplitude " + std::to_string(amplitude));
      Case whole = dense_case(type, {1, 30, kKeys, 2, 1, 16, 16}, 71, true);
      std::vector<double> q = whole.q.values();
      for (double& x : q) x *= amplitude;
      whole.q.assign(q);
      set_statistics(whole);
      const Results exact = exact_attention(whole.backward_args(), true);
      std::vector<double> dq(exact.dq.size());
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, kFirst}, std::pair{kFirst, kKeys}}) {
        Case part = dense_case(type, {1, 30, end - begin, 2, 1, 16, 16}, 71, true);
        const auto rows = [&](const TensorBuffer& of) {
          const std::vector<double> values = of.values();
          return std::vector<double>(values.begin() + begin * 16, values.begin() + end * 16);
        };
        part.q.assign(q), part.dout.assign(whole.dout.values());
        part.k.assign(rows(whole.k)), part.v.assign(rows(whole.v));
        part.o_in.assign(whole.o_in.values()), part.lse_in.assign(whole.lse_in.values());
        part.options.backend = GetParam();
        ASSERT_EQ(run_guarded(part, Pass::backward, run_public).error, "");
        const std::vector<double> part_dq = part.dq.values(), dv = part.dv.values();
        for (std::size_t n = 0; n < dq.size(); ++n) dq[n] += part_dq[n];
        const double bound = type == DType::f32 ? 2e-5 * std::sqrt(amplitude) : 0.02;  // lse is given in f32
        for (std::size_t n = 0; n < dv.size(); ++n)
          ASSERT_NEAR(dv[n], exact.dv[static_cast<std::size_t>(begin) * 16 + n], bound * (1 + std::abs(dv[n])));
      }
      const double bound = (type == DType::f32 ? 2e-5 : 0.04) * amplitude;
      for (std::size_t n = 0; n < dq.size(); ++n) ASSERT_NEAR(dq[n], exact.dq[n], bound * (1 + std::abs(exact.dq[n])));
    }
}

ONCHIP_FOR_EACH_BACKEND(Gradients);

}  // namespace
}  // namespace onchip::test
