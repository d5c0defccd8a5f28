// NVRTC, the run-time compiler, opened when something has to be compiled.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "cuda/host/nvrtc_api.hpp"

namespace onchip::cuda {

struct Nvrtc {
#define ONCHIP_ENTRY(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  ONCHIP_NVRTC_ENTRIES(ONCHIP_ENTRY)
#undef ONCHIP_ENTRY
  std::string path;
  int major = 0;
  int minor = 0;
};

/// Opens NVRTC: ONCHIP_NVRTC where that is set, else the loader's, then CUDA_HOME, /usr/local/cuda and the Python
/// packages that PyTorch brings along.
Status load_nvrtc(Nvrtc& nvrtc);

/// The process's NVRTC, opened at the first call; `status` says why there is none.
struct NvrtcInUse {
  Nvrtc nvrtc;
  Status status;
};
const NvrtcInUse& nvrtc_in_use();

/// A source text and the name that others include it by.
struct SourceFile {
  const char* name;
  const char* text;
};

struct Compilation {
  std::vector<char> cubin;
  std::string log;  // the compiler's and the assembler's
};

/// Compiles `main`, whose includes are resolved among `headers` alone. The error carries the log.
Status compile(const Nvrtc& nvrtc, const SourceFile& main, std::span<const SourceFile> headers,
               std::span<const std::string> options, Compilation& compilation);

}  // namespace onchip::cuda
