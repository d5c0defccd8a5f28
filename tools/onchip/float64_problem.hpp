// The same problem in float64, to measure errors against.
#pragma once

#include <vector>

#include "onchip/io/bytes.hpp"
#include "onchip/onchip.hpp"
#include "onchip/results.hpp"

namespace onchip::cli {

/// Results of `problem` in float64. Standard attention computes them where its scores fit into memory, else the fastest
/// implementation of float64.
class Float64Results {
 public:
  /// `problem` is valid and has contiguous tensors; with `gradients` the backward pass runs too.
  Float64Results(const Attention& problem, bool gradients);

  std::span<const NamedTensor> tensors() const { return results_->tensors(); }
  /// Of the forward pass.
  const std::string& implementation() const { return implementation_; }

 private:
  Tensor converted(const Tensor& tensor);

  std::vector<Bytes> storage_;
  std::unique_ptr<Results> results_;
  std::string implementation_;
};

struct Difference {
  std::string tensor;
  double absolute = 0;  // largest |got − wanted|
  double relative = 0;  // largest |got − wanted| / (1 + |wanted|)
};

/// Infinities and NaN that are not in the same places make both infinite.
Difference difference(const NamedTensor& got, const NamedTensor& wanted);

}  // namespace onchip::cli
