#include "cuda/host/dynamic_library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace onchip::cuda {
namespace {

namespace fs = std::filesystem;

void append_environment_folder(std::vector<std::string>& prefixes, const char* variable, const char* suffix) {
  if (const char* value = std::getenv(variable); value != nullptr && *value != '\0')
    prefixes.push_back(std::string(value) + suffix);
}

/// The prefix of the python3 that the PATH finds: its real path is PREFIX/bin/python3….
void append_python_prefix(std::vector<std::string>& prefixes) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const fs::path folder = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
    std::error_code failed;
    if (fs::exists(folder / "python3", failed)) {
      prefixes.push_back(folder.parent_path().string());
      return;
    }
  }
}

}  // namespace

Status DynamicLibrary::open(std::span<const std::string> candidates, const char* what, DynamicLibrary& library) {
  std::string tried;
  std::string first_error;
  for (const std::string& candidate : candidates) {
    library.handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_ != nullptr) {
      library.path_ = candidate;
      return {};
    }
    const char* error = dlerror();
    if (first_error.empty() && error != nullptr) first_error = error;
    tried += (tried.empty() ? "" : ", ") + candidate;
  }
  return unsupported("{}: not found (tried {}): {}", what, tried, first_error);
}

void* DynamicLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

std::vector<std::string> site_packages() {
  std::vector<std::string> prefixes;
  append_environment_folder(prefixes, "VIRTUAL_ENV", "");
  append_environment_folder(prefixes, "CONDA_PREFIX", "");
  append_python_prefix(prefixes);
  append_environment_folder(prefixes, "HOME", "/.local");
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});

  std::vector<std::string> found;
  for (const std::string& prefix : prefixes) {
    std::error_code failed;
    for (fs::directory_iterator entry(prefix + "/lib", failed), end; !failed && entry != end; entry.increment(failed)) {
      if (!entry->path().filename().string().starts_with("python3")) continue;
      for (const char* folder : {"site-packages", "dist-packages"})
        if (fs::is_directory(entry->path() / folder, failed)) found.push_back((entry->path() / folder).string());
      failed.clear();
    }
  }
  return found;
}

}  // namespace onchip::cuda
