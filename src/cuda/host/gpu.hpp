// The GPUs of this process.
#pragma once

#include <cstddef>
#include <string>

#include "core/problem.hpp"
#include "core/status.hpp"
#include "cuda/host/driver.hpp"
#include "model/machine.hpp"

namespace onchip::cuda {

struct Gpu {
  int ordinal = 0;
  Device device = 0;
  Context context = nullptr;  // the primary one, which the CUDA runtime and PyTorch use too
  std::string name;
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int l2_bytes = 0;
  int shared_bytes_per_block = 0;
  int shared_bytes_per_multiprocessor = 0;
  std::size_t memory_bytes = 0;
  model::Machine machine;  // for the traffic model

  /// The architecture that kernels are compiled for, with its special instructions where it has some: "sm_90a".
  std::string arch() const;
};

/// The machine's GPU with this ordinal; opened once. The driver must be there.
Status find_gpu(const Driver& driver, int ordinal, const Gpu*& gpu);

/// The GPU that holds the problem's tensors.
Status gpu_of(const Problem& problem, const Gpu*& gpu);

/// Whether kernels of the library run on it.
Status check_capability(const Gpu& gpu);

/// Makes a GPU's primary context current for the calling thread, and puts back what was.
class CurrentGpu {
 public:
  explicit CurrentGpu(const Driver& driver) : driver_(driver) {}
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;
  ~CurrentGpu();

  Status enter(const Gpu& gpu);

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

}  // namespace onchip::cuda
