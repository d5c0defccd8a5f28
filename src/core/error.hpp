// Where the C++ front turns the library's inner error value into an exception.
#pragma once

#include "core/status.hpp"

namespace onchip {

inline void check(const Status& status) {
  if (!status.ok()) throw Error(status.code(), status.message());
}

}  // namespace onchip
