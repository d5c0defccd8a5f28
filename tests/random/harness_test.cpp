// The checks of the random cases can fail: each fault, done on purpose, is seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/attention.hpp"
#include "reference/formats.hpp"
#include "support/cases.hpp"
#include "support/check_case.hpp"
#include "support/run.hpp"

namespace onchip::test {
namespace {

/// A perfect implementation: the reference, rounded.
Outcome run_reference(Case& c, Pass pass) {
  const Results exact = exact_attention(pass == Pass::forward ? c.inputs() : c.backward_args(), pass == Pass::backward);
  if (pass == Pass::forward) {
    c.o.assign(exact.o), c.lse.assign(exact.lse);
  } else {
    c.dq.assign(exact.dq), c.dk.assign(exact.dk), c.dv.assign(exact.dv);
  }
  return {};
}

using Fault = std::function<void(Case&)>;

/// Runs the reference and then the fault; returns whether anything was noticed.
bool noticed(DType type, Pass pass, const Fault& fault) {
  Case c = dense_case(type, {2, 20, 30, 2, 1, 24, 16}, 61, true);
  c.o = TensorBuffer(type, {2, 20, 2, 16}, {{20 * 2 * 20, 2 * 20, 20, 1}, 0, 2 * 20 * 2 * 20});  // gaps of 4 elements
  c.options.causal = true;
  set_statistics(c);
  const Outcome outcome = run_guarded(c, pass, [&](const Attention&, Pass p) {
    const Outcome done = run_reference(c, p);
    fault(c);
    return done;
  });
  return !outcome.error.empty() || !compare_results(c, pass).empty();
}

void scale_element(TensorBuffer& tensor, std::size_t at, double factor) {
  std::vector<double> values = tensor.values();
  values[at] *= factor;
  tensor.assign(values);
}

void scale_largest(TensorBuffer& tensor, double factor) {
  const std::vector<double> values = tensor.values();
  const auto smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const auto largest_one = std::max_element(values.begin(), values.end(), smaller);
  scale_element(tensor, static_cast<std::size_t>(largest_one - values.begin()), factor);
}

TEST(Harness, AcceptsTheReference) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const Pass pass : {Pass::forward, Pass::backward}) EXPECT_FALSE(noticed(type, pass, [](Case&) {}));
}

void expect_wrong_element_seen(DType type, double factor) {
  for (TensorBuffer Case::*result : {&Case::o, &Case::lse})
    EXPECT_TRUE(noticed(type, Pass::forward, [&](Case& c) { scale_largest(c.*result, factor); })) << name(type);
  for (TensorBuffer Case::*result : {&Case::dq, &Case::dk, &Case::dv})
    EXPECT_TRUE(noticed(type, Pass::backward, [&](Case& c) { scale_largest(c.*result, factor); })) << name(type);
}

TEST(Harness, SeesOneWrongElement) {
  expect_wrong_element_seen(DType::f64, 1 + 1e-9);
  expect_wrong_element_seen(DType::f32, 1.001);
  expect_wrong_element_seen(DType::bf16, 1.1);
}

TEST(Harness, SeesAnElementLeftUnwritten) {
  EXPECT_TRUE(noticed(DType::f32, Pass::forward,
                      [](Case& c) { std::fill_n(static_cast<std::byte*>(c.o.view().data), sizeof(float), kPoison); }));
}

TEST(Harness, SeesInfinityInPlaceOfANumber) {
  EXPECT_TRUE(noticed(DType::bf16, Pass::forward, [](Case& c) { scale_element(c.o, 40, 1e300); }));
}

TEST(Harness, SeesWritesBetweenAndAroundRows) {
  for (const std::int64_t element : {std::int64_t{16}, std::int64_t{-1}, std::int64_t{2 * 20 * 2 * 20}})
    EXPECT_TRUE(noticed(DType::f32, Pass::forward, [&](Case& c) { encode(DType::f32, c.o.view().data, element, 0.0); }))
        << element;
}

TEST(Harness, SeesWritesToInputs) {
  EXPECT_TRUE(noticed(DType::f32, Pass::forward, [](Case& c) { scale_element(c.v, 3, 2.0); }));
}

/// A feature that is ignored gives another function.
TEST(Harness, SeesAnIgnoredFeature) {
  EXPECT_TRUE(noticed(DType::f32, Pass::forward, [](Case& c) {
    c.options.causal = false;
    run_reference(c, Pass::forward);
    c.options.causal = true;
  }));
}

}  // namespace
}  // namespace onchip::test
