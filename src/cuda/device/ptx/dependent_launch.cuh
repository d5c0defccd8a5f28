// A kernel launched before the one it depends on has ended. (PTX ISA, sm_90; nothing on older GPUs)
#pragma once

namespace onchip::cuda {

/// Lets the next kernel of the stream be launched once every CTA has said so or ended.
__forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the kernel before has ended and what it wrote can be read.
__forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace onchip::cuda
