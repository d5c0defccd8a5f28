// The list that the dispatcher walks. A new implementation is one line here, at its place by speed.
#include "cpu/implementations.hpp"

#include "cuda/implementations.hpp"

namespace onchip {

std::span<const Implementation* const> implementations() {
  static constexpr const Implementation* kList[] = {
      &cuda::kFwdSm90,        &cuda::kPortableForward, &cpu::kDecode,           &cpu::kForward,
      &cpu::kStandardForward, &cpu::kBackward,         &cpu::kStandardBackward,
  };
  return kList;
}

}  // namespace onchip
