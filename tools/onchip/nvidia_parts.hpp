// What of NVIDIA's software and hardware this machine has: looked for, never required.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace onchip::cli {

struct FoundLibrary {
  std::string path;
  std::string version;
};

struct Gpu {
  std::string name;
  std::string compute_capability;  ///< "9.0"
  std::int64_t memory_bytes = 0;
};

struct NvidiaParts {
  int pci_devices = 0;                 ///< display and compute devices of the vendor
  std::optional<FoundLibrary> driver;  ///< libcuda; its version is that of CUDA it speaks
  std::string driver_fault;            ///< why a driver that is there does not work
  std::vector<Gpu> gpus;
  std::optional<FoundLibrary> nvrtc;  ///< compiles kernels
  std::optional<FoundLibrary> cupti;  ///< reads hardware counters
};

NvidiaParts find_nvidia_parts();

/// Devices of NVIDIA, displays and accelerators alone, below a folder such as /sys/bus/pci/devices.
int count_nvidia_devices(const std::filesystem::path& devices);

/// Where toolkits and Python packages put their libraries: $CUDA_HOME, $CUDA_PATH, /usr/local/cuda*, the active
/// virtual or conda environment, the user's and the system's Python packages. Only folders that exist.
std::vector<std::filesystem::path> cuda_library_folders();

/// The file of the highest version in `folder` that is called NAME.so, NAME.so.12, …; empty where there is none.
std::filesystem::path newest_library(const std::filesystem::path& folder, const std::string& name);

}  // namespace onchip::cli
