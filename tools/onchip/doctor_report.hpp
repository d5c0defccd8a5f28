// What onchip doctor found, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/machine.hpp"
#include "onchip/nvidia_parts.hpp"

namespace onchip::cli {

struct BlasFacts {
  std::string config;  ///< as OpenBLAS describes itself; empty when it is not there
  std::string kernel;  ///< the CPU whose kernels it runs
  std::string forced;  ///< OPENBLAS_CORETYPE
};

struct MeasuredPeaks {
  model::CpuPeaks one_thread, all_threads;
};

/// Something that the machine lacks or that slows it down, and what to do about it.
struct Advice {
  std::string what;
  std::string how;
};

struct DoctorReport {
  std::string version;
  std::string cpu_name;
  int usable_cores = 1, online_cores = 1, threads = 1;
  model::CacheSizes caches;
  std::int64_t memory_bytes = 0;
  std::string chosen_isa;
  std::vector<std::string> supported_isas, compiled_isas;
  BlasFacts blas;
  NvidiaParts nvidia;
  std::string cuda_refusal;  ///< why the cuda backend takes nothing here; empty where it does
  std::optional<MeasuredPeaks> peaks;
};

/// What is missing, most important first. Empty when there is nothing to do.
std::vector<Advice> advice(const DoctorReport& report);

std::string doctor_text(const DoctorReport& report);
std::string doctor_json(const DoctorReport& report);

}  // namespace onchip::cli
