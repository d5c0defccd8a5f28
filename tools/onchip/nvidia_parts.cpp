#include "onchip/nvidia_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

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

std::optional<FoundLibrary> find_nvrtc() {
  const SharedLibrary library = open_library("libnvrtc", {".13", ".12", ".11.2", ""});
  if (!library.is_open()) return std::nullopt;
  int major = 0, minor = 0;
  const auto version = library.function<int(int*, int*)>("nvrtcVersion");
  if (version == nullptr || version(&major, &minor) != 0) return FoundLibrary{library.path(), "unknown"};
  return FoundLibrary{library.path(), fmt::format("{}.{}", major, minor)};
}

std::optional<FoundLibrary> find_cupti() {
  const SharedLibrary library = open_library("libcupti", {".13", ".12", ".11.8", ""});
  if (!library.is_open()) return std::nullopt;
  std::uint32_t number = 0;
  const auto version = library.function<int(std::uint32_t*)>("cuptiGetVersion");
  if (version == nullptr || version(&number) != 0) return FoundLibrary{library.path(), "unknown"};
  return FoundLibrary{library.path(), fmt::format("API {}", number)};
}

std::string cuda_version_text(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

Gpu describe_gpu(const SharedLibrary& driver, int device) {
  constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;  // CUdevice_attribute
  Gpu gpu;
  std::array<char, 256> text{};
  if (const auto get = driver.function<int(char*, int, int)>("cuDeviceGetName"))
    if (get(text.data(), static_cast<int>(text.size() - 1), device) == 0) gpu.name = text.data();
  if (const auto get = driver.function<int(int*, int, int)>("cuDeviceGetAttribute")) {
    int major = 0, minor = 0;
    if (get(&major, kComputeCapabilityMajor, device) == 0 && get(&minor, kComputeCapabilityMinor, device) == 0)
      gpu.compute_capability = fmt::format("{}.{}", major, minor);
  }
  std::size_t bytes = 0;
  if (const auto get = driver.function<int(std::size_t*, int)>("cuDeviceTotalMem_v2"))
    if (get(&bytes, device) == 0) gpu.memory_bytes = static_cast<std::int64_t>(bytes);
  return gpu;
}

void find_driver(NvidiaParts& parts) {
  const SharedLibrary driver("libcuda.so.1");
  if (!driver.is_open()) return;
  parts.driver = FoundLibrary{driver.path(), "unknown"};
  int number = 0;
  if (const auto version = driver.function<int(int*)>("cuDriverGetVersion"); version && version(&number) == 0)
    parts.driver->version = cuda_version_text(number);
  const auto initialise = driver.function<int(unsigned)>("cuInit");
  const auto count_devices = driver.function<int(int*)>("cuDeviceGetCount");
  if (initialise == nullptr || count_devices == nullptr) {
    parts.driver_fault = "it lacks cuInit or cuDeviceGetCount";
    return;
  }
  int count = 0;
  if (const int error = initialise(0); error != 0)
    parts.driver_fault = fmt::format("cuInit returned error {}", error);
  else if (const int count_error = count_devices(&count); count_error != 0)
    parts.driver_fault = fmt::format("cuDeviceGetCount returned error {}", count_error);
  for (int device = 0; device < count; ++device) parts.gpus.push_back(describe_gpu(driver, device));
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
  find_driver(parts);
  parts.nvrtc = find_nvrtc();
  parts.cupti = find_cupti();
  return parts;
}

}  // namespace onchip::cli
