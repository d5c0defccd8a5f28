#include "onchip/float64_problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/number_format.hpp"
#include "onchip/measure.hpp"

namespace onchip::cli {
namespace {

bool is_quantised(DType type) { return type == DType::i8 || type == DType::e4m3 || type == DType::e5m2; }

void widen(const Tensor& from, double* to) {
  const std::size_t count = element_count(from);
  visit_element(from.dtype, [&](auto tag) {
    const auto* elements = static_cast<const typename decltype(tag)::type*>(from.data);
    for (std::size_t i = 0; i < count; ++i) to[i] = to_double(elements[i]);
  });
}

/// Half of what is available, for the scores of standard attention.
bool fits_in_memory(std::size_t bytes) {
  const std::optional<std::size_t> available = available_memory();
  return !available || bytes <= *available / 2;
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

Tensor Float64Results::converted(const Tensor& tensor) {
  if (!tensor.present()) return tensor;
  const std::size_t count = element_count(tensor);
  storage_.emplace_back(count * sizeof(double));
  auto* numbers = reinterpret_cast<double*>(storage_.back().data());
  widen(tensor, numbers);
  Tensor wide = tensor;
  wide.data = numbers;
  wide.dtype = DType::f64;
  return wide;
}

Float64Results::Float64Results(const Attention& problem, bool gradients) {
  static const float kOne = 1.0f;
  Attention wide = problem;
  wide.q = converted(problem.q);
  if (is_quantised(problem.k.dtype)) {  // stored values stay what they are: the library turns them into numbers
    if (!wide.k_scale.present()) wide.k_scale = contiguous(&kOne, DType::f32, {1});
    if (!wide.v_scale.present()) wide.v_scale = contiguous(&kOne, DType::f32, {1});
  } else {
    wide.k = converted(problem.k);
    wide.v = converted(problem.v);
  }
  wide.bias = converted(problem.bias);
  wide.dout = converted(problem.dout);
  wide.o = wide.lse = wide.dq = wide.dk = wide.dv = wide.dbias = wide.dsink = Tensor{};
  wide.at_least.clear();
  wide.backend = Backend::standard;
  const Pass largest = gradients ? Pass::backward : Pass::forward;
  if (!fits_in_memory(plan(wide, largest).workspace_bytes)) wide.backend = Backend::automatic;
  results_ = std::make_unique<Results>(wide, gradients);
  implementation_ = forward(wide).implementation;
  if (gradients) static_cast<void>(backward(wide));
}

Difference difference(const NamedTensor& got, const NamedTensor& wanted) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Difference result{got.name};
  const std::size_t count = element_count(got.tensor);
  visit_element(got.tensor.dtype, [&](auto tag) {
    const auto* elements = static_cast<const typename decltype(tag)::type*>(got.tensor.data);
    const auto* exact = static_cast<const double*>(wanted.tensor.data);
    for (std::size_t i = 0; i < count; ++i) {
      const double value = to_double(elements[i]);
      const bool comparable = std::isfinite(value) && std::isfinite(exact[i]);
      if (!comparable && same_number(value, exact[i])) continue;
      const double error = comparable ? std::abs(value - exact[i]) : kInfinity;
      result.absolute = std::max(result.absolute, error);
      result.relative = std::max(result.relative, comparable ? error / (1 + std::abs(exact[i])) : kInfinity);
    }
  });
  return result;
}

}  // namespace onchip::cli
