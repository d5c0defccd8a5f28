// A problem whose tensors are copied to a GPU.
#pragma once

#include <vector>

#include "onchip/gpu.hpp"
#include "onchip/onchip.hpp"

namespace onchip::cli {

/// The GPU that --backend cuda means.
constexpr int kFirstGpu = 0;

/// Throws onchip::Error, which says why, where that GPU cannot be used.
void check_gpu();

/// `problem` on the GPU as far as planning is concerned: with the backend, tensors in device memory.
Attention planned_on_gpu(Attention problem);

class DeviceProblem {
 public:
  /// Copies the tensors of `problem`, which has data; results too, so that what is not written stays as it was.
  explicit DeviceProblem(const Attention& problem);

  const Attention& args() const { return args_; }
  /// Copies o and lse back to where the problem has them.
  void read_results() const;

 private:
  struct Copy {
    Tensor host;
    DeviceMemory memory;
  };

  Attention args_;
  std::vector<Copy> results_;
  std::vector<DeviceMemory> inputs_;
};

}  // namespace onchip::cli
