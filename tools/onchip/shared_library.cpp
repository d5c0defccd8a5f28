#include "onchip/shared_library.hpp"

#include <dlfcn.h>
#include <link.h>

namespace onchip::cli {

SharedLibrary::SharedLibrary(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) {}

std::string SharedLibrary::path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  return map->l_name;
}

void* SharedLibrary::address(const char* name) const { return handle_ == nullptr ? nullptr : dlsym(handle_, name); }

}  // namespace onchip::cli
