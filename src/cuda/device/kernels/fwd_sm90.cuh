// Forward attention on Hopper: wgmma, bulk tensor copies, warps of two roles, a deferred maximum.
//
//   s = scale·(q·kᵀ) (softcap, bias, ALiBi, masks);  p = exp2(s − reference);  o = Σ p·v / Σ p;  lse = ln Σ exp(s)
//
// CTAs are persistent, one an SM. A work tile is tile_m = 128 query rows of one sequence and head over all keys that
// any of them sees, right to left in steps of tile_n.
//
//   warps     role       registers  work
//   0 – 3     consumer         232  rows 0 – 63 of the tile
//   4 – 7     consumer         232  rows 64 – 127
//   8         producer          40  chooses tiles, starts copies, clears the tail of v
//
//   barrier (each of the stages or warpgroups)   arrives                     waits      count
//   full_q[warpgroup], and the tile's slot        producer and q's copy       consumer   1
//   empty_q[warpgroup]                            its warps, after q·kᵀ       producer   4
//   full_k, full_v[stage]                         producer and the copy       consumers  1
//   empty_k, empty_v[stage]                       every warp, after a product producer   8
//   tail                                          the copy of a last v tile   producer   1
//   turn (a named one a warpgroup)                the other warpgroup         its warps  256
//
// The step over block j of the keys: start q·kⱼᵀ, start pⱼ₋₁·vⱼ₋₁ beside it, wait for the first, weigh its scores while
// the second runs, wait for that, round the weights. The two warpgroups take turns in starting products, so that one's
// softmax runs under the other's products.
//
// Blocks that some row does not see whole, and one more, are weighed with a running maximum; from then on every row has
// a reference, and the rest are weighed against that (attn/deferred_softmax.cuh). A tile whose sum or output is not
// finite at the end goes on a list of the CTA's, and is done again, block by block with the running maximum and with
// infinities among hidden values kept out, when all other work is done.
//
// Bytes from global memory: q once, k and v once a tile (mostly from L2: neighbouring CTAs walk the same heads), o and
// lse once.
#include <cstdint>

#include "cuda/device/attn/fwd_sm90_consumer.cuh"
#include "cuda/device/attn/fwd_sm90_producer.cuh"
#include "cuda/device/ptx/warp_roles.cuh"

namespace onchip::cuda {

constexpr FwdSm90Config kKernelConfig = ONCHIP_FWD_SM90_CONFIG;

extern "C" __global__ void __launch_bounds__(FwdSm90Config::kThreads, 1)
    ONCHIP_KERNEL_NAME(const __grid_constant__ FwdSm90Params params) {
  extern __shared__ __align__(1024) char shared[];
  const FwdSm90Shared<kKernelConfig> s(shared);
  if (threadIdx.x == 0) s.init_barriers();
  __syncthreads();
  if (threadIdx.x < FwdSm90Config::kConsumerThreads) {
    take_registers<232>();
    FwdSm90Consumer<kKernelConfig>(params, s).run();
  } else {
    give_registers<40>();
    if (threadIdx.x < FwdSm90Config::kConsumerThreads + 32) FwdSm90Producer<kKernelConfig>(params, s).run();
  }
}

}  // namespace onchip::cuda
