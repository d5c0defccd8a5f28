// Where a thread stands in its CTA.
#pragma once

namespace onchip::cuda {

/// This thread's index, read anew: what is computed from it is not kept in registers from loop to loop.
__forceinline__ int fresh_thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace onchip::cuda
