#include "onchip/nvidia_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "onchip/gpu.hpp"
#include "onchip/shared_library.hpp"

namespace onchip::cli {
namespace {

namespace fs = std::filesystem;

/// Entries of a folder; none where it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator item(folder, error), end; !error && item != end; item.increment(error))
    found.push_back(item->path());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> entries_that_begin(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> found;
  for (const fs::path& path : entries(folder))
    if (path.filename().string().starts_with(prefix)) found.push_back(path);
  return found;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void add_environment(const char* variable, std::vector<fs::path>& roots) {
  if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') roots.emplace_back(value);
}

std::vector<fs::path> toolkit_roots() {
  std::vector<fs::path> roots;
  add_environment("CUDA_HOME", roots);
  add_environment("CUDA_PATH", roots);
  add_environment("CONDA_PREFIX", roots);
  for (const fs::path& path : entries_that_begin("/usr/local", "cuda")) roots.push_back(path);
  roots.emplace_back("/opt/cuda");
  return roots;
}

std::vector<fs::path> python_package_folders() {
  std::vector<fs::path> prefixes;
  add_environment("VIRTUAL_ENV", prefixes);
  add_environment("CONDA_PREFIX", prefixes);
  if (const char* home = std::getenv("HOME")) prefixes.push_back(fs::path(home) / ".local");
  prefixes.emplace_back("/usr/local");
  std::vector<fs::path> folders = {"/usr/lib/python3/dist-packages"};
  for (const fs::path& prefix : prefixes)
    for (const fs::path& python : entries_that_begin(prefix / "lib", "python3"))
      for (const char* packages : {"site-packages", "dist-packages"}) folders.push_back(python / packages);
  return folders;
}

/// "12" and "11.2" compare by their numbers.
std::vector<int> version_numbers(const std::string& text) {
  std::vector<int> numbers;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    numbers.push_back(std::atoi(text.substr(begin, end - begin).c_str()));
    begin = end + 1;
  }
  return numbers;
}

/// By the loader's own search first, then in the known folders.
SharedLibrary open_library(const std::string& name, std::initializer_list<const char*> versions) {
  for (const char* version : versions)
    if (SharedLibrary library(name + ".so" + version); library.is_open()) return library;
  for (const fs::path& folder : cuda_library_folders())
    if (const fs::path file = newest_library(folder, name); !file.empty())
      if (SharedLibrary library(file.string()); library.is_open()) return library;
  return {};
}

std::optional<FoundLibrary> find_cupti() {
  const SharedLibrary library = open_library("libcupti", {".13", ".12", ".11.8", ""});
  if (!library.is_open()) return std::nullopt;
  std::uint32_t number = 0;
  const auto version = library.function<int(std::uint32_t*)>("cuptiGetVersion");
  if (version == nullptr || version(&number) != 0) return FoundLibrary{library.path(), "unknown"};
  return FoundLibrary{library.path(), fmt::format("API {}", number)};
}

}  // namespace

int count_nvidia_devices(const fs::path& devices) {
  int count = 0;
  for (const fs::path& device : entries(devices)) {
    const std::string device_class = first_line(device / "class");
    // PCI base classes: 0x03 display, 0x12 processing accelerator.
    const bool computes = device_class.starts_with("0x03") || device_class.starts_with("0x12");
    if (computes && first_line(device / "vendor") == "0x10de") ++count;
  }
  return count;
}

std::vector<fs::path> cuda_library_folders() {
  std::vector<fs::path> candidates;
  for (const fs::path& root : toolkit_roots())
    for (const char* part :
         {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "extras/CUPTI/lib64"})
      candidates.push_back(root / part);
  for (const fs::path& packages : python_package_folders()) {
    // One folder a library, or, from CUDA 13 on, one for all of a version.
    for (const char* part : {"cuda_nvrtc/lib", "cuda_cupti/lib"}) candidates.push_back(packages / "nvidia" / part);
    for (const fs::path& version : entries_that_begin(packages / "nvidia", "cu1"))
      candidates.push_back(version / "lib");
  }
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::path& path : candidates)
    if (fs::is_directory(path, error)) folders.push_back(path);
  return folders;
}

fs::path newest_library(const fs::path& folder, const std::string& name) {
  const std::string stem = name + ".so";
  fs::path newest;
  std::vector<int> newest_version;
  for (const fs::path& path : entries_that_begin(folder, stem)) {
    const std::string rest = path.filename().string().substr(stem.size());
    if (!rest.empty() && rest.front() != '.') continue;
    const std::vector<int> version = version_numbers(rest.empty() ? "" : rest.substr(1));
    if (newest.empty() || version > newest_version) {
      newest = path;
      newest_version = version;
    }
  }
  return newest;
}

NvidiaParts find_nvidia_parts() {
  NvidiaParts parts;
  parts.pci_devices = count_nvidia_devices("/sys/bus/pci/devices");
  const GpuSoftware found = gpu_software();
  const auto library = [](const std::string& path, const std::string& version) {
    return path.empty() ? std::nullopt : std::optional(FoundLibrary{path, version.empty() ? "unknown" : version});
  };
  parts.driver = library(found.driver_path, found.driver_version);
  if (parts.driver) parts.driver_fault = found.driver_fault;
  for (const GpuDevice& device : found.devices)
    parts.gpus.push_back({device.name,
                          fmt::format("{}.{}", device.compute_capability / 10, device.compute_capability % 10),
                          static_cast<std::int64_t>(device.memory_bytes)});
  parts.nvrtc = library(found.nvrtc_path, found.nvrtc_version);
  parts.cupti = find_cupti();
  return parts;
}

}  // namespace onchip::cli
