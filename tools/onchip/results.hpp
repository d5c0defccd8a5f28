// Memory for what attention writes.
#pragma once

#include <span>
#include <vector>

#include "onchip/io/bytes.hpp"
#include "onchip/io/safetensors.hpp"
#include "onchip/onchip.hpp"

namespace onchip::cli {

std::size_t element_count(const Tensor& tensor);
/// Type and shape of o and dout, without data.
Tensor output_like(const Attention& problem);

/// Owns o, lse and, with `gradients`, every gradient that has an input, and points a problem at them.
class Results {
 public:
  /// The shapes of the problem's inputs have been validated by plan(). Everything is filled with NaN.
  Results(Attention& problem, bool gradients);

  std::span<const NamedTensor> tensors() const { return tensors_; }

 private:
  void add(Attention& problem, const char* name, Tensor Attention::*member, Tensor like);

  std::vector<Bytes> storage_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace onchip::cli
