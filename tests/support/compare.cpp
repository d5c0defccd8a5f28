#include "support/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/formats.hpp"

namespace onchip::test {
namespace {

constexpr double kFloat32Error = 2e-5;
constexpr double kFloat64Error = 1e-11;
constexpr double kTwoRoundings = 0x1p-23;  // of f32
constexpr double kTwoFloat64Roundings = 0x1p-52;

double largest_error(DType type, const std::vector<double>& exact, const std::vector<double>& standard) {
  double worst = 0;
  for (std::size_t n = 0; n < exact.size(); ++n)
    if (std::isfinite(round_to(type, exact[n])) && std::isfinite(standard[n]))
      worst = std::max(worst, std::abs(standard[n] - exact[n]));
  return worst;
}

double allowed_error(DType type, double exact, double standard_error) {
  const double bound = 2 * standard_error + ulp(type, exact);
  const double relative = type == DType::f64 ? kFloat64Error : type == DType::f32 ? kFloat32Error : 0.0;
  return std::max(bound, relative * (1 + std::abs(exact)));
}

bool same_kind(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b; }

}  // namespace

std::string compare(const char* result_name, const TensorBuffer& got, const Expectation& expected) {
  const auto& [exact, standard, unrounded, magnitude] = expected;
  const DType type = got.view().dtype;
  const std::vector<double> values = got.values();
  for (std::size_t n = 0; n < values.size(); ++n) {
    const double wanted = round_to(type, exact[n]);
    if ((!std::isfinite(values[n]) || !std::isfinite(wanted)) && !same_kind(values[n], wanted))
      return fmt::format("{}[{}] is {}, expected {}", result_name, n, values[n], wanted);
  }
  const double standard_error = std::max(largest_error(type, exact, standard), largest_error(type, exact, unrounded));
  const double two_roundings = type == DType::f64 ? kTwoFloat64Roundings : kTwoRoundings;
  double worst = 0;
  std::string text;
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (!std::isfinite(values[n])) continue;
    const double error = std::abs(values[n] - exact[n]);
    const double rounding = two_roundings * magnitude[n];
    const double allowed = allowed_error(type, exact[n], std::max(standard_error, rounding));
    if (error <= allowed || error / allowed <= worst) continue;
    worst = error / allowed;
    text = fmt::format("{}[{}] is {}, expected {}: error {:.3g}, allowed {:.3g} (standard attention: {:.3g})",
                       result_name, n, values[n], exact[n], error, allowed, standard_error);
  }
  return text;
}

std::string compare_rmse(const char* result_name, const TensorBuffer& got, const Expectation& expected) {
  const std::vector<double>&exact = expected.exact, &standard = expected.standard;
  const DType type = got.view().dtype;
  const std::vector<double> values = got.values();
  double ours = 0, theirs = 0, last_place = 0;
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (!std::isfinite(exact[n]) || !std::isfinite(standard[n])) continue;
    ours += (values[n] - exact[n]) * (values[n] - exact[n]);
    theirs += (standard[n] - exact[n]) * (standard[n] - exact[n]);
    const double unit =
        std::max(ulp(type, exact[n]), type == DType::f32 ? kFloat32Error * (1 + std::abs(exact[n])) : 0);
    last_place += unit * unit;
  }
  const double count = std::max<double>(1, static_cast<double>(values.size()));
  const double error = std::sqrt(ours / count), allowed = std::sqrt(theirs / count) + std::sqrt(last_place / count) / 4;
  if (error <= allowed) return "";
  return fmt::format("{}: RMSE {:.3g}, allowed {:.3g} (standard attention: {:.3g})", result_name, error, allowed,
                     std::sqrt(theirs / count));
}

}  // namespace onchip::test
