// What warps of different roles need: registers of their own number, and barriers among some of them. (PTX ISA, sm_90a)
#pragma once

namespace onchip::cuda {

template <int kRegisters>
__forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// kThreads threads meet at a barrier of their own, 1 … 15.
template <int kBarrier, int kThreads>
__forceinline__ void meet() {
  asm volatile("barrier.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

/// Counts among those that meet, without waiting for the others.
template <int kBarrier, int kThreads>
__forceinline__ void pass_by() {
  asm volatile("barrier.arrive %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

/// The same, and whether any of them brought `true`.
template <int kBarrier, int kThreads>
__forceinline__ bool meet_any(bool mine) {
  unsigned any;
  asm volatile("{\n.reg .pred p, q;\nsetp.ne.u32 p, %3, 0;\nbarrier.red.or.pred q, %1, %2, p;\nselp.u32 %0, 1, 0, q;\n}"
               : "=r"(any)
               : "n"(kBarrier), "n"(kThreads), "r"(static_cast<unsigned>(mine))
               : "memory");
  return any != 0;
}

}  // namespace onchip::cuda
