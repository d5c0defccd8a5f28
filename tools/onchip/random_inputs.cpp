#include "onchip/random_inputs.hpp"

#include <cmath>
#include <random>

#include "core/number_format.hpp"
#include "onchip/results.hpp"

namespace onchip::cli {
namespace {

constexpr unsigned kSeed = 20240229;
constexpr double kKeptByMask = 0.75;
constexpr double kInt8PerUnit = 32.0;  // ±4 standard deviations fill the type

template <typename Next>
void fill(const Tensor& tensor, Next next) {
  const std::size_t count = element_count(tensor);
  visit_element(tensor.dtype, [&](auto tag) {
    using Element = typename decltype(tag)::type;
    auto* elements = static_cast<Element*>(tensor.data);
    for (std::size_t i = 0; i < count; ++i) elements[i] = from_double<Element>(next(i));
  });
}

}  // namespace

std::byte* RandomInputs::allocate(Tensor& tensor) {
  storage_.emplace_back(element_count(tensor) * size_of(tensor.dtype));
  tensor.data = storage_.back().data();
  return storage_.back().data();
}

RandomInputs::RandomInputs(Attention& problem, bool backward) {
  std::mt19937_64 generator(kSeed);
  std::normal_distribution<double> normal;
  if (backward) problem.dout = output_like(problem);
  for (Tensor Attention::*member :
       {&Attention::q, &Attention::k, &Attention::v, &Attention::bias, &Attention::sink, &Attention::dout}) {
    Tensor& tensor = problem.*member;
    if (!tensor.present()) continue;
    allocate(tensor);
    const double unit = tensor.dtype == DType::i8 ? kInt8PerUnit : 1.0;
    fill(tensor, [&](std::size_t) { return unit * normal(generator); });
  }
  const double scale = problem.k.dtype == DType::i8 ? 1 / kInt8PerUnit : 1.0;
  for (Tensor* tensor : {&problem.k_scale, &problem.v_scale}) {
    if (!tensor->present()) continue;
    allocate(*tensor);
    fill(*tensor, [&](std::size_t) { return scale; });
  }
  if (problem.alibi_slopes.present()) {
    allocate(problem.alibi_slopes);
    const auto heads = static_cast<double>(problem.alibi_slopes.shape[0]);
    fill(problem.alibi_slopes, [&](std::size_t h) { return std::exp2(-8.0 * static_cast<double>(h + 1) / heads); });
  }
  if (problem.mask.present()) {
    std::byte* keep = allocate(problem.mask);
    std::bernoulli_distribution kept(kKeptByMask);
    for (std::size_t i = 0; i < element_count(problem.mask); ++i) keep[i] = std::byte{kept(generator)};
  }
}

}  // namespace onchip::cli
