#include "cuda/host/nvrtc.hpp"

#include <cstdlib>

#include "cuda/host/dynamic_library.hpp"

namespace onchip::cuda {
namespace {

constexpr const char* kFileNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

std::vector<std::string> candidates() {
  if (const char* chosen = std::getenv("ONCHIP_NVRTC"); chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> folders = {""};
  if (const char* home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0')
    folders.insert(folders.end(), {std::string(home) + "/lib64/", std::string(home) + "/lib/"});
  folders.insert(folders.end(), {"/usr/local/cuda/lib64/", "/opt/cuda/lib64/"});
  for (const std::string& packages : site_packages())
    folders.insert(folders.end(), {packages + "/nvidia/cu13/lib/", packages + "/nvidia/cuda_nvrtc/lib/"});
  std::vector<std::string> files;
  for (const std::string& folder : folders)
    for (const char* name : kFileNames) files.push_back(folder + name);
  return files;
}

/// Owns a program for the length of one compilation.
class Program {
 public:
  explicit Program(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_ != nullptr) nvrtc_.nvrtcDestroyProgram(&program_);
  }
  NvrtcProgram* address() { return &program_; }
  NvrtcProgram get() const { return program_; }

 private:
  const Nvrtc& nvrtc_;
  NvrtcProgram program_ = nullptr;
};

std::string read_log(const Nvrtc& nvrtc, NvrtcProgram program) {
  std::size_t size = 0;
  if (nvrtc.nvrtcGetProgramLogSize(program, &size) != kNvrtcSuccess || size <= 1) return {};
  std::string log(size, '\0');
  if (nvrtc.nvrtcGetProgramLog(program, log.data()) != kNvrtcSuccess) return {};
  log.resize(size - 1);  // without the terminating zero
  return log;
}

Status failure(const Nvrtc& nvrtc, const char* call, NvrtcResult result, const std::string& log) {
  return {StatusCode::internal, fmt::format("nvrtc: {} failed ({}: {}){}{}", call, result,
                                            nvrtc.nvrtcGetErrorString(result), log.empty() ? "" : ": ", log)};
}

}  // namespace

Status load_nvrtc(Nvrtc& nvrtc) {
  DynamicLibrary library;
  ONCHIP_RETURN_IF_ERROR(DynamicLibrary::open(candidates(), "NVRTC", library));
  nvrtc.path = library.path();
#define ONCHIP_ENTRY(name, ...) ONCHIP_RETURN_IF_ERROR(bind(library, #name, nvrtc.name));
  ONCHIP_NVRTC_ENTRIES(ONCHIP_ENTRY)
#undef ONCHIP_ENTRY
  const NvrtcResult result = nvrtc.nvrtcVersion(&nvrtc.major, &nvrtc.minor);
  return result == kNvrtcSuccess ? Status{} : failure(nvrtc, "nvrtcVersion", result, {});
}

const NvrtcInUse& nvrtc_in_use() {
  static const NvrtcInUse opened = [] {
    NvrtcInUse result;
    result.status = load_nvrtc(result.nvrtc);
    return result;
  }();
  return opened;
}

Status compile(const Nvrtc& nvrtc, const SourceFile& main, std::span<const SourceFile> headers,
               std::span<const std::string> options, Compilation& compilation) {
  std::vector<const char*> texts, names, option_texts;
  for (const SourceFile& header : headers) {
    texts.push_back(header.text);
    names.push_back(header.name);
  }
  for (const std::string& option : options) option_texts.push_back(option.c_str());

  Program program(nvrtc);
  NvrtcResult result = nvrtc.nvrtcCreateProgram(program.address(), main.text, main.name,
                                                static_cast<int>(headers.size()), texts.data(), names.data());
  if (result != kNvrtcSuccess) return failure(nvrtc, "nvrtcCreateProgram", result, {});
  result = nvrtc.nvrtcCompileProgram(program.get(), static_cast<int>(option_texts.size()), option_texts.data());
  compilation.log = read_log(nvrtc, program.get());
  if (result != kNvrtcSuccess) return failure(nvrtc, "nvrtcCompileProgram", result, compilation.log);

  std::size_t size = 0;
  result = nvrtc.nvrtcGetCUBINSize(program.get(), &size);
  if (result != kNvrtcSuccess) return failure(nvrtc, "nvrtcGetCUBINSize", result, {});
  compilation.cubin.resize(size);
  result = nvrtc.nvrtcGetCUBIN(program.get(), compilation.cubin.data());
  return result == kNvrtcSuccess ? Status{} : failure(nvrtc, "nvrtcGetCUBIN", result, {});
}

}  // namespace onchip::cuda
