// A shared library opened while the program runs. It stays loaded: not every vendor's library gives back its memory and
// threads when closed.
#pragma once

#include <string>

namespace onchip::cli {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// By path, or by name as the loader looks it up. Tests with is_open().
  explicit SharedLibrary(const std::string& name);

  bool is_open() const { return handle_ != nullptr; }
  /// The file it was loaded from; empty where the loader does not tell.
  std::string path() const;

  /// Null where the library has no such function.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const char* name) const;

  void* handle_ = nullptr;
};

}  // namespace onchip::cli
