// Copies of boxes of a tensor from global to shared memory by the copy engine. (PTX ISA, sm_90)
#pragma once

#include <cstdint>

#include "cuda/shared/tensor_map.hpp"

namespace onchip::cuda {

__forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// The box whose first element has the given coordinates: column, row, head, batch. Elements outside the tensor arrive
/// as zeros, and count among the barrier's bytes.
__forceinline__ void copy_box(std::uint32_t shared, const TensorMap& map, std::uint32_t barrier, int column, int row,
                              int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

/// Between ordinary writes to shared memory and reads of them by wgmma or the copy engine.
__forceinline__ void fence_shared_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace onchip::cuda
