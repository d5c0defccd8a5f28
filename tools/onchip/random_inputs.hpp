// Random data for a problem given by its shape: normal q, k, v, bias, sink and dout, a mask that keeps three keys of
// four, the usual ALiBi slopes. The same every time.
#pragma once

#include <vector>

#include "onchip/io/bytes.hpp"
#include "onchip/onchip.hpp"

namespace onchip::cli {

class RandomInputs {
 public:
  /// Gives every present input of `problem` that has no data its data, and adds dout where the backward pass is to run.
  RandomInputs(Attention& problem, bool backward);

 private:
  std::byte* allocate(Tensor& tensor);

  std::vector<Bytes> storage_;
};

}  // namespace onchip::cli
