// cp.async: copies from global to shared memory that pass no register. (PTX ISA, sm_80)
#pragma once

#include <cstdint>

namespace onchip::cuda {

/// The 32-bit address that shared-memory instructions take.
__forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies kBytes (4, 8 or 16), or writes zeros where `valid` is false; `source` is then not read.
template <int kBytes>
__forceinline__ void copy_async(std::uint32_t shared, const void* source, bool valid) {
  const int source_bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(source), "r"(source_bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(source), "n"(kBytes),
                 "r"(source_bytes)
                 : "memory");
}

__forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kPending of this thread's committed groups are under way.
template <int kPending>
__forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace onchip::cuda
