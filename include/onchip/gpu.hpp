// onchip: GPUs for programs that have no CUDA code of their own, and kernels compiled ahead of time. The C++ interface.
//
// A program that has device pointers and a stream needs none of this: see Attention::device in onchip.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "onchip/onchip.hpp"

namespace onchip {

/// Memory of a CUDA device.
class ONCHIP_API DeviceMemory {
 public:
  DeviceMemory(int device, std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  void* data() const { return data_; }
  /// Copies from or to host memory; both wait until the bytes are there.
  void write(const void* from, std::size_t bytes);
  void read(void* to, std::size_t bytes) const;

 private:
  int device_ = -1;
  void* data_ = nullptr;
};

/// Waits until the device has done everything that this process asked of it.
ONCHIP_API void synchronize(int device);

struct GpuDevice {
  std::string name;
  int compute_capability = 0;  ///< 90: 9.0
  std::size_t memory_bytes = 0;
};

/// What this process would use of NVIDIA's software. Empty paths: not found.
struct GpuSoftware {
  std::string driver_path, driver_version;  ///< "13.0": the version of CUDA that it speaks
  std::string driver_fault;                 ///< why a driver that is there does not serve, or none does
  std::string nvrtc_path, nvrtc_version;
  std::vector<GpuDevice> devices;
};
ONCHIP_API GpuSoftware gpu_software();

struct CompiledKernel {
  std::string name;
  std::string path;
  std::vector<std::string> complaints;  ///< the assembler's, about what makes a kernel slow
};

/// Compiles the kernels that the problem needs on an architecture ("sm_90a") into `folder`, for processes that have
/// ONCHIP_KERNELS name it: those need no compiler. Needs NVRTC, and no GPU. Tensor data is not looked at.
ONCHIP_API std::vector<CompiledKernel> compile(const Attention& problem, Pass pass, const std::string& arch,
                                               const std::string& folder);

}  // namespace onchip
