// A consumer warpgroup of the Hopper forward kernel: 64 query rows, products by wgmma, softmax in registers.
#pragma once

#include "cuda/device/attn/deferred_softmax.cuh"
#include "cuda/device/attn/fwd_sm90_epilogue.cuh"
#include "cuda/device/attn/fwd_sm90_shared.cuh"
#include "cuda/device/attn/hidden_values.cuh"
#include "cuda/device/attn/scores.cuh"
#include "cuda/device/ptx/warp_roles.cuh"
#include "cuda/device/ptx/wgmma.cuh"

namespace onchip::cuda {

template <FwdSm90Config kConfig>
class FwdSm90Consumer {
 public:
  __forceinline__ FwdSm90Consumer(const FwdSm90Params& p, const FwdSm90Shared<kConfig>& s)
      : p_(p), s_(s), warpgroup_(__shfl_sync(0xFFFFFFFF, threadIdx.x / FwdSm90Config::kWarpgroup, 0)) {}

  __forceinline__ void run() {
    State x;
    const FwdSm90Tile* given = &next_tile();
    if (given->kind == FwdSm90Tile::work) compute_all(x, given);
    release_q();
    meet<FwdSm90Shared<kConfig>::kAllDone, FwdSm90Config::kConsumerThreads + 32>();
#pragma unroll 1
    for (given = &next_tile(); given->kind == FwdSm90Tile::careful; given = &next_tile()) compute_carefully(x, *given);
  }

 private:
  static constexpr PortableConfig kAttention = kConfig.attention;
  static constexpr bool kF16 = kAttention.math == Math::f16;
  static constexpr int kTileN = kAttention.tile_n;
  static constexpr int kColTiles = kTileN / 8;
  static constexpr int kValues = kAttention.padded_head_dim_v();
  static constexpr int kRowBytes = FwdSm90Config::kRowBytes;
  static constexpr int kAtomBytes = 8 * kRowBytes;  // of the swizzle
  static constexpr int kChunkSteps = FwdSm90Config::kChunk / 16;
  // Weights of f16 must stay below 2^16, those of bf16 below 2^128.
  using Softmax = DeferredSoftmax<kF16 ? 14 : 60>;
  using ScoreWgmma = Wgmma<kF16, kTileN>;
  using ValueWgmma = Wgmma<kF16, kValues>;

  struct State {
    float acc_s[1][kColTiles][4];
    float acc_o[kValues / 2];
    std::uint32_t weights[kTileN / 16][4];
  };

  /// Scores in the order of an accumulator's registers, which is theirs.
  static __forceinline__ float (&flat(float (&acc_s)[1][kColTiles][4]))[kTileN / 2] {
    return reinterpret_cast<float(&)[kTileN / 2]>(acc_s);
  }

  /// The next tile with keys, or of a kind other than work.
  __forceinline__ const FwdSm90Tile& next_tile() {
#pragma unroll 1
    for (;;) {
      wait(s_.full_q(q_ring_.stage, warpgroup_), q_ring_.parity);
      const FwdSm90Tile& given = s_.tile(slot_.stage);
      slot_.advance();
      if (given.kind != FwdSm90Tile::work || given.tile.begin_key < given.tile.end_key) return given;
      FwdSm90Epilogue<kConfig>(p_.attention, given.tile).store_empty();
      release_q();
    }
  }

  /// Tiles from `given` on to the last of kind work. Where the next tile's q has a place of its own, the last product
  /// of a tile runs beside the first of the next one, which runs on while the tile's output is written.
  __forceinline__ void compute_all(State& x, const FwdSm90Tile* given) {
    if (warpgroup_ == 1) pass_turn();
    start_scores(x);
#pragma unroll 1
    for (;;) {
      const FwdSm90Tile& tile = *given;
      const Scores<kAttention> scores(p_.attention, tile.tile);
      Softmax softmax(scores.exponent_factor());
      walk(x, softmax, scores, KeyBlocks<kConfig>(tile.tile));
      if constexpr (kConfig.q_stages() > 1) given = &next_tile();
      if (kConfig.q_stages() == 1 || given->kind != FwdSm90Tile::work) {
        await_turn();
        start_values(x);
        pass_turn();
        wgmma_wait<0>();
        release_values(x);
        store(x, softmax, tile);
        if constexpr (kConfig.q_stages() == 1) given = &next_tile();
        if (given->kind != FwdSm90Tile::work) return;
        start_scores(x);
      } else {
        await_turn();
        start_values(x);
        start_scores(x);
        pass_turn();
        wgmma_wait<1>();
        release_values(x);
        store(x, softmax, tile);
      }
    }
  }

  /// One tile, whose first scores are on their way: all blocks of its keys, each one's softmax beside the product of
  /// the block before. Leaves the weights of the last.
  __forceinline__ void walk(State& x, Softmax& softmax, const Scores<kAttention>& scores,
                            const KeyBlocks<kConfig>& blocks) {
    float rescale[2];
    wgmma_wait<0>();
    release_scores(x, blocks.first == blocks.last);
    make_logits(x, scores, blocks, blocks.first);
    softmax.template weigh<false>(x.acc_s, rescale);
    round_weights(x);
    clear_output(x);
    const std::int32_t first_deferred = blocks.first_deferred();
    std::int32_t block = blocks.first - 1;
#pragma unroll 1
    for (; block >= blocks.last && block > first_deferred; --block) step<false>(x, softmax, scores, blocks, block);
    if constexpr (kConfig.defers_maximum()) {
#pragma unroll 1
      for (; block >= blocks.last && block >= blocks.begin_whole; --block)
        step<true>(x, softmax, scores, blocks, block);
#pragma unroll 1
      for (; block >= blocks.last; --block) step<false>(x, softmax, scores, blocks, block);
    }
  }

  template <bool kDeferred>
  __forceinline__ void step(State& x, Softmax& softmax, const Scores<kAttention>& scores,
                            const KeyBlocks<kConfig>& blocks, std::int32_t block) {
    float rescale[2];
    await_turn();
    start_scores(x);
    start_values(x);
    pass_turn();
    wgmma_wait<1>();
    release_scores(x, block == blocks.last);
    if constexpr (kDeferred)
      scores.template finish<false>(x.acc_s, block * kTileN);
    else
      make_logits(x, scores, blocks, block);
    const bool moved = softmax.template weigh<kDeferred>(x.acc_s, rescale);
    wgmma_wait<0>();
    release_values(x);
    pin_registers(flat(x.acc_s));
    if (moved) rescale_output(x, rescale);
    round_weights(x);
  }

  /// One tile, block after block with the running maximum, and with infinities and NaN in v kept to the rows that see
  /// them.
  __forceinline__ void compute_carefully(State& x, const FwdSm90Tile& given) {
    const Scores<kAttention> scores(p_.attention, given.tile);
    const KeyBlocks<kConfig> blocks(given.tile);
    Softmax softmax(scores.exponent_factor());
    clear_output(x);
#pragma unroll 1
    for (std::int32_t block = blocks.first; block >= blocks.last; --block) {
      float rescale[2];
      start_scores(x);
      wgmma_wait<0>();
      release_scores(x, block == blocks.last);
      make_logits(x, scores, blocks, block);
      if (softmax.template weigh<false>(x.acc_s, rescale)) rescale_output(x, rescale);
      wait(s_.full_v(v_ring_.stage), v_ring_.parity);
      HiddenValues<kConfig>::template isolate<FwdSm90Shared<kConfig>::kConsumersOnly>(x.acc_o, s_.v(v_ring_.stage),
                                                                                      scores, block * kTileN);
      round_weights(x);
      start_values(x);
      wgmma_wait<0>();
      release_values(x);
    }
    FwdSm90Epilogue<kConfig>(p_.attention, given.tile).store(softmax, x.acc_o);
  }

  /// Writes a tile, and marks it to be done again where it is not finite.
  __forceinline__ void store(const State& x, const Softmax& softmax, const FwdSm90Tile& tile) {
    const bool finite = FwdSm90Epilogue<kConfig>(p_.attention, tile.tile).store(softmax, x.acc_o);
    if (!finite && threadIdx.x % 32 == 0) atomicOr(s_.redo(tile.ordinal / 32), 1u << tile.ordinal % 32);
  }

  // Warpgroups start their products in turns, so that one's run under the other's softmax.
  static constexpr int kTurn = FwdSm90Shared<kConfig>::kTurn;
  __forceinline__ void await_turn() const {
    if (warpgroup_ == 0)
      meet<kTurn, FwdSm90Config::kConsumerThreads>();
    else
      meet<kTurn + 1, FwdSm90Config::kConsumerThreads>();
  }
  __forceinline__ void pass_turn() const {
    if (warpgroup_ == 0)
      pass_by<kTurn + 1, FwdSm90Config::kConsumerThreads>();
    else
      pass_by<kTurn, FwdSm90Config::kConsumerThreads>();
  }

  static __forceinline__ void clear_output(State& x) {
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) x.acc_o[i] = 0.0f;
  }

  static __forceinline__ void rescale_output(State& x, const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) x.acc_o[i] *= rescale[i / 2 % 2];
  }

  /// Scores of any block become logits, −∞ where a row does not see the key.
  static __forceinline__ void make_logits(State& x, const Scores<kAttention>& scores, const KeyBlocks<kConfig>& blocks,
                                          std::int32_t block) {
    if (kAttention.general_scores() || kAttention.mask || !blocks.whole(block))
      scores.template finish<true>(x.acc_s, block * kTileN);
  }

  /// q · the next block of kᵀ, once that is there.
  __forceinline__ void start_scores(State& x) {
    wait(s_.full_k(k_ring_.stage), k_ring_.parity);
    const MatrixDescriptor q(s_.q(q_ring_.stage, warpgroup_), kAtomBytes, 0);
    const MatrixDescriptor k(s_.k(k_ring_.stage), kAtomBytes, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kAttention.padded_head_dim() / 16; ++step) {
      const int chunk = step / kChunkSteps, within = step % kChunkSteps * 32;
      ScoreWgmma::multiply(flat(x.acc_s), q.at(chunk * FwdSm90Config::kWarpgroupRows * kRowBytes + within),
                           k.at(chunk * kTileN * kRowBytes + within), step > 0);
    }
    wgmma_commit();
  }

  /// The product of q and k is done; of all of the tile's, when `last`.
  __forceinline__ void release_scores(State& x, bool last) {
    pin_registers(flat(x.acc_s));
    release(s_.empty_k(k_ring_.stage));
    k_ring_.advance();
    if (last) release_q();
  }

  /// o += weights · the next block of v, once that is there.
  __forceinline__ void start_values(State& x) {
    wait(s_.full_v(v_ring_.stage), v_ring_.parity);
    const MatrixDescriptor v(shared_address(s_.v(v_ring_.stage)), kAtomBytes, kTileN * kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTileN / 16; ++step)
      ValueWgmma::multiply(x.acc_o, x.weights[step], v.at(step * 16 * kRowBytes), true);
    wgmma_commit();
  }

  /// The product of weights and v is done.
  __forceinline__ void release_values(State& x) {
    pin_registers(x.acc_o);
    release(s_.empty_v(v_ring_.stage));
    v_ring_.advance();
  }

  static __forceinline__ void round_weights(State& x) {
#pragma unroll
    for (int step = 0; step < kTileN / 16; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = x.acc_s[0][2 * step + i / 2] + i % 2 * 2;
        x.weights[step][i] = kF16 ? pack_f16(pair[0], pair[1]) : pack_bf16(pair[0], pair[1]);
      }
  }

  /// This warp has read what the barrier guards.
  static __forceinline__ void release(std::uint32_t barrier) {
    if (threadIdx.x % 32 == 0) arrive(barrier);
  }

  __forceinline__ void release_q() {
    release(s_.empty_q(q_ring_.stage, warpgroup_));
    q_ring_.advance();
  }

  const FwdSm90Params& p_;
  const FwdSm90Shared<kConfig>& s_;
  const int warpgroup_;
  RingPosition<kConfig.q_stages()> q_ring_;
  RingPosition<kConfig.kv_stages()> k_ring_, v_ring_;
  RingPosition<kConfig.tile_slots()> slot_;
};

}  // namespace onchip::cuda
