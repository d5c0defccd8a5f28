// Shared libraries that are looked for at run time, so that neither building nor starting needs them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace onchip::cuda {

/// An opened shared library, never closed: the driver and the compiler keep threads and exit handlers of their own.
class DynamicLibrary {
 public:
  /// Opens the first of `candidates` (file names for the loader, or paths) that opens. The error lists what was tried.
  static Status open(std::span<const std::string> candidates, const char* what, DynamicLibrary& library);

  void* symbol(const char* name) const;
  const std::string& path() const { return path_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
};

/// Sets `function` to the entry point `name`, or says that `library` lacks it.
template <typename Function>
Status bind(const DynamicLibrary& library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(library.symbol(name));
  if (function == nullptr) return unsupported("{}: has no {}, expected a newer version", library.path(), name);
  return {};
}

/// Where Python packages may be installed: site-packages folders of the environment in use and of the system.
std::vector<std::string> site_packages();

}  // namespace onchip::cuda
