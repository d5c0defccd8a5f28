#include "cuda/host/jit.hpp"

#include <cstring>
#include <regex>
#include <sstream>

#include "cuda/host/embedded_sources.hpp"
#include "cuda/host/sha256.hpp"

namespace onchip::cuda {
namespace {

std::vector<std::string> options(const KernelRequest& request) {
  std::vector<std::string> list = {"--gpu-architecture=" + request.arch, "--std=c++20",
                                   "--device-as-default-execution-space", "--ptxas-options=-v",
                                   "-DONCHIP_KERNEL_NAME=" + request.name};
  for (const std::string& define : request.defines) list.push_back("-D" + define);
  return list;
}

const SourceFile* find(const char* name) {
  for (const SourceFile& file : embedded_sources())
    if (std::strcmp(file.name, name) == 0) return &file;
  return nullptr;
}

}  // namespace

const std::string& embedded_digest() {
  static const std::string digest = [] {
    Sha256 hash;
    for (const SourceFile& file : embedded_sources()) {
      hash.update(fmt::format("{} {}\n", file.name, std::strlen(file.text)));
      hash.update(file.text);
    }
    return hash.finish();
  }();
  return digest;
}

CubinKey prepared_key(const KernelRequest& request) {
  std::string text = fmt::format("sources {}\nkernel {}\n", embedded_digest(), request.source);
  for (const std::string& option : options(request)) text += option + "\n";
  return {request.name + "-" + request.arch, text};
}

CubinKey cached_key(const KernelRequest& request, const Nvrtc& nvrtc) {
  CubinKey key = prepared_key(request);
  key.text += fmt::format("nvrtc {}.{}\n", nvrtc.major, nvrtc.minor);
  return key;
}

Status compile_kernel(const Nvrtc& nvrtc, const KernelRequest& request, Compilation& compilation) {
  const SourceFile* main = find(request.source);
  if (main == nullptr) return {StatusCode::internal, fmt::format("{}: not an embedded source", request.source)};
  std::vector<std::string> all_options = options(request);
  // NVRTC 13 keeps a cache of its own, whose hits come without a log.
  if (nvrtc.major >= 13) all_options.push_back("--no-cache");
  return compile(nvrtc, *main, embedded_sources(), all_options, compilation);
}

Status get_cubin(const KernelRequest& request, std::vector<char>& cubin, CubinOrigin& origin) {
  origin = CubinOrigin::prepared;
  const std::string prepared = prepared_folder();
  if (!prepared.empty() && read_cubin(prepared, prepared_key(request), cubin)) return {};

  const NvrtcInUse& compiler = nvrtc_in_use();
  if (!compiler.status.ok())
    return unsupported("{}: not among the prepared kernels (ONCHIP_KERNELS={}), and cannot be compiled: {}",
                       request.name, prepared, compiler.status.message());
  const std::string folder = cache_folder();
  const CubinKey key = cached_key(request, compiler.nvrtc);
  origin = CubinOrigin::cached;
  if (!folder.empty() && read_cubin(folder, key, cubin)) return {};

  origin = CubinOrigin::compiled;
  Compilation compilation;
  ONCHIP_RETURN_IF_ERROR(compile_kernel(compiler.nvrtc, request, compilation));
  cubin = std::move(compilation.cubin);
  if (!folder.empty()) {
    // A cache that cannot be written (read-only, full) costs the next process a compilation, not this one its result.
    [[maybe_unused]] const Status not_cached = write_cubin(folder, key, cubin);
  }
  return {};
}

std::vector<std::string> complaints(const std::string& log) {
  static const std::regex slow(
      "[1-9][0-9]* bytes (stack frame|spill stores|spill loads)|C75(08|10|11|12|13|14|15|16)|setmaxnreg.*ignored");
  std::vector<std::string> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (std::regex_search(line, slow)) found.push_back(line);
  return found;
}

}  // namespace onchip::cuda
