// The copy engine's description of a tensor, which the driver encodes and kernels only pass on. (CUtensorMap)
#pragma once

#include <cstdint>

namespace onchip::cuda {

struct alignas(64) TensorMap {
  std::uint64_t opaque[16];
};

}  // namespace onchip::cuda
