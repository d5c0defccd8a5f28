// The producer warp of the Hopper forward kernel: chooses work tiles and keeps their q, k and v coming.
#pragma once

#include "cuda/device/attn/fwd_sm90_shared.cuh"
#include "cuda/device/ptx/tensor_copy.cuh"
#include "cuda/device/ptx/warp_roles.cuh"

namespace onchip::cuda {

template <FwdSm90Config kConfig>
class FwdSm90Producer {
 public:
  __forceinline__ FwdSm90Producer(const FwdSm90Params& p, const FwdSm90Shared<kConfig>& s)
      : p_(p), s_(s), lane_(threadIdx.x % 32) {}

  __forceinline__ void run() {
    if (lane_ == 0) prefetch_map(p_.q_map), prefetch_map(p_.k_map), prefetch_map(p_.v_map);
    int given = 0;
    std::int32_t number = blockIdx.x;
    // In the second pass those of the first that are to be done again.
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
      const bool again = pass == 1;
      if (again) meet<FwdSm90Shared<kConfig>::kAllDone, FwdSm90Config::kConsumerThreads + 32>();
#pragma unroll 1
      for (int ordinal = 0; again ? ordinal < given : number < p_.num_tiles && ordinal < kMostTiles; ++ordinal) {
        std::int32_t claimed = 0;
        if (again) {
          if (!(*s_.redo(ordinal / 32) >> ordinal % 32 & 1)) continue;
          number = s_.given(ordinal);
        } else {
          // What the last tile would claim, nobody would compute.
          if (ordinal + 1 < kMostTiles) claimed = claim();
          if (lane_ == 0) s_.given(ordinal) = number;
          given = ordinal + 1;
        }
        give(number, ordinal, again ? FwdSm90Tile::careful : FwdSm90Tile::work);
        if (!again)
          number = p_.next_tile == nullptr ? number + gridDim.x : gridDim.x + __shfl_sync(0xFFFFFFFF, claimed, 0);
      }
      describe(WorkTile{}, 0, again ? FwdSm90Tile::finished : FwdSm90Tile::all_given, false);
    }
  }

 private:
  static constexpr PortableConfig kAttention = kConfig.attention;
  static constexpr int kConsumers = FwdSm90Config::kConsumers;
  static constexpr int kMostTiles = FwdSm90Config::kMostTiles;
  static constexpr int kChunk = FwdSm90Config::kChunk;
  static constexpr int kRowBytes = FwdSm90Config::kRowBytes;
  static constexpr int kRows = FwdSm90Config::kWarpgroupRows;
  static constexpr int kTileN = kAttention.tile_n;

  /// Lane 0's share in the work that is given out one by one; asked for a tile ahead, since the answer takes a while.
  __forceinline__ std::int32_t claim() const {
    return p_.next_tile != nullptr && lane_ == 0 ? atomicAdd(p_.next_tile, 1) : 0;
  }

  /// One work tile: its description, q, and all of its k and v.
  __forceinline__ void give(std::int32_t number, int ordinal, FwdSm90Tile::Kind kind) {
    const WorkTile tile = work_tile<kAttention>(p_.attention, number);
    if (tile.num_rows <= 0) return;
    const KeyBlocks<kConfig> blocks(tile);
    const bool any = blocks.first >= blocks.last;
    // With one place for q, that of the last tile may still be in use, and k should not wait for it.
    if (kConfig.q_stages() > 1) describe(tile, ordinal, kind, any);
    if (any) load_k(tile, blocks.first);
    if (kConfig.q_stages() == 1) describe(tile, ordinal, kind, any);
    for (std::int32_t block = blocks.first; block >= blocks.last; --block) {
      if (block > blocks.last) load_k(tile, block - 1);
      load_v(tile, block);
    }
  }

  /// Hands over a description, with q where there are keys.
  __forceinline__ void describe(const WorkTile& tile, int ordinal, FwdSm90Tile::Kind kind, bool with_q) {
    const int stage = q_ring_.stage;
    for (int w = 0; w < kConsumers; ++w) {
      wait(s_.empty_q(stage, w), q_ring_.parity ^ 1);
      if (lane_ != 0) continue;
      if (w == 0) s_.tile(slot_.stage) = {tile, ordinal, kind};
      const std::uint32_t full = s_.full_q(stage, w);
      arrive_expecting(full, with_q ? kConfig.q_bytes() : 0);
      for (int chunk = 0; with_q && chunk < kConfig.qk_chunks(); ++chunk)
        copy_box(s_.q(stage, w) + chunk * kRows * kRowBytes, p_.q_map, full, chunk * kChunk,
                 static_cast<int>(tile.begin_q) + tile.first_row + w * kRows, tile.first_head * p_.q_head,
                 kAttention.packed_q ? 0 : tile.batch * p_.q_batch);
    }
    q_ring_.advance();
    slot_.advance();
  }

  __forceinline__ void load_k(const WorkTile& tile, std::int32_t block) {
    wait(s_.empty_k(k_ring_.stage), k_ring_.parity ^ 1);
    if (lane_ == 0)
      copy(p_.k_map, s_.k(k_ring_.stage), s_.full_k(k_ring_.stage), kConfig.qk_chunks(), tile, block, p_.k_head,
           p_.k_batch);
    k_ring_.advance();
  }

  __forceinline__ void load_v(const WorkTile& tile, std::int32_t block) {
    wait(s_.empty_v(v_ring_.stage), v_ring_.parity ^ 1);
    char* v = s_.v(v_ring_.stage);
    const std::uint32_t full = s_.full_v(v_ring_.stage);
    const bool cleared = kConfig.clears_tail() && (block + 1) * kTileN > tile.seqlen_k;
    if (lane_ == 0)
      copy(p_.v_map, shared_address(v), cleared ? s_.tail() : full, kConfig.v_chunks(), tile, block, p_.v_head,
           p_.v_batch);
    if (cleared) {
      wait(s_.tail(), tail_ring_.parity);
      tail_ring_.advance();
      clear_rows(v, tile.seqlen_k - block * kTileN);
      fence_shared_proxy();
      __syncwarp();
      if (lane_ == 0) arrive(full);
    }
    v_ring_.advance();
  }

  __forceinline__ void copy(const TensorMap& map, std::uint32_t shared, std::uint32_t barrier, int chunks,
                            const WorkTile& tile, std::int32_t block, int head_factor, int batch_factor) {
    arrive_expecting(barrier, chunks * kTileN * kRowBytes);
    for (int chunk = 0; chunk < chunks; ++chunk)
      copy_box(shared + chunk * kTileN * kRowBytes, map, barrier, chunk * kChunk,
               static_cast<int>(tile.begin_k) + block * kTileN, tile.head_kv * head_factor,
               kAttention.packed_k ? 0 : tile.batch * batch_factor);
  }

  /// What lies past the end of a sequence may be NaN, and 0 · NaN is NaN.
  __forceinline__ void clear_rows(char* v, int first) {
    constexpr int kUnits = kRowBytes / 16;
    for (int chunk = 0; chunk < kConfig.v_chunks(); ++chunk)
      for (int unit = first * kUnits + lane_; unit < kTileN * kUnits; unit += 32)
        *reinterpret_cast<uint4*>(v + chunk * kTileN * kRowBytes + unit * 16) = uint4{0, 0, 0, 0};
  }

  const FwdSm90Params& p_;
  const FwdSm90Shared<kConfig>& s_;
  const int lane_;
  RingPosition<kConfig.q_stages()> q_ring_;
  RingPosition<kConfig.kv_stages()> k_ring_, v_ring_;
  RingPosition<kConfig.tile_slots()> slot_;
  RingPosition<1> tail_ring_;
};

}  // namespace onchip::cuda
