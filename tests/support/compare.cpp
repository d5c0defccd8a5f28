#include "support/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/formats.hpp"

namespace onchip::test {
namespace {

constexpr double kFloat32Error = 2e-5;
constexpr double kFloat64Error = 1e-10;
constexpr double kRmseOfStandard = 1.02;
constexpr double kRmseOfRoundedWeights = 1.05;
constexpr double kCancellation = 0x1p-22;  // two roundings each in two f32 accumulators
constexpr double kCancellationOfF64 = 0x1p-51;

double largest_error(DType type, const std::vector<double>& exact, const std::vector<double>& standard) {
  double worst = 0;
  for (std::size_t n = 0; n < exact.size(); ++n)
    if (std::isfinite(round_to(type, exact[n])) && std::isfinite(standard[n]))
      worst = std::max(worst, std::abs(standard[n] - exact[n]));
  return worst;
}

double allowed_error(const Expectation& expected, DType type, std::size_t n, double standard_error) {
  const double exact = expected.exact[n];
  const double relative = (type == DType::f64   ? kFloat64Error
                           : type == DType::f32 ? kFloat32Error
                                                : 0.0) *
                          (1 + std::abs(exact));
  if (expected.inputs == DType::f32 && type == DType::f32 && !expected.float_products) return relative;
  const double roundings = expected.inputs == DType::f64 ? kCancellationOfF64 : kCancellation;
  const double cancellation = expected.magnitude.empty() ? 0 : roundings * expected.magnitude[n];
  return std::max(std::max(2 * standard_error, cancellation) + ulp(type, exact), relative);
}

bool same_kind(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b; }

}  // namespace

std::string compare(const char* result_name, const TensorBuffer& got, const Expectation& expected) {
  const std::vector<double>&exact = expected.exact, &standard = expected.standard;
  const DType type = got.view().dtype;
  const std::vector<double> values = got.values();
  for (std::size_t n = 0; n < values.size(); ++n) {
    const double wanted = round_to(type, exact[n]);
    if ((!std::isfinite(values[n]) || !std::isfinite(wanted)) && !same_kind(values[n], wanted))
      return fmt::format("{}[{}] is {}, expected {}", result_name, n, values[n], wanted);
  }
  const double standard_error =
      std::max(largest_error(type, exact, standard), largest_error(type, exact, expected.unrounded));
  double worst = 0;
  std::string text;
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (!std::isfinite(values[n])) continue;
    const double error = std::abs(values[n] - exact[n]);
    const double allowed = allowed_error(expected, type, n, standard_error);
    if (error <= allowed || error / allowed <= worst) continue;
    worst = error / allowed;
    text = fmt::format("{}[{}] is {}, expected {}: error {:.3g}, allowed {:.3g} (standard attention: {:.3g})",
                       result_name, n, values[n], exact[n], error, allowed, standard_error);
  }
  return text;
}

std::string compare_rmse(const char* result_name, const TensorBuffer& got, const Expectation& expected) {
  const std::vector<double>&exact = expected.exact, &standard = expected.standard;
  const std::vector<double> values = got.values();
  double ours = 0, theirs = 0;
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (!std::isfinite(exact[n]) || !std::isfinite(standard[n])) continue;
    ours += (values[n] - exact[n]) * (values[n] - exact[n]);
    theirs += (standard[n] - exact[n]) * (standard[n] - exact[n]);
  }
  const double count = std::max<double>(1, static_cast<double>(values.size()));
  const double error = std::sqrt(ours / count),
               allowed =
                   (expected.float_products ? kRmseOfRoundedWeights : kRmseOfStandard) * std::sqrt(theirs / count);
  if (error <= allowed) return "";
  return fmt::format("{}: RMSE {:.3g}, allowed {:.3g} (standard attention: {:.3g})", result_name, error, allowed,
                     std::sqrt(theirs / count));
}

}  // namespace onchip::test
