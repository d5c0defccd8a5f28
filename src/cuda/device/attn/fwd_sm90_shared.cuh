// Shared memory of the Hopper forward kernel, by name.
#pragma once

#include <cstdint>

#include "cuda/device/attn/work_tile.cuh"
#include "cuda/device/ptx/async_copy.cuh"
#include "cuda/device/ptx/mbarrier.cuh"
#include "cuda/shared/fwd_sm90_config.hpp"
#include "cuda/shared/fwd_sm90_params.hpp"

namespace onchip::cuda {

/// What the producer tells the consumers.
struct FwdSm90Tile {
  enum Kind : std::int32_t { work, careful, all_given, finished };
  WorkTile tile;
  std::int32_t ordinal;  // among the tiles that this CTA was given
  Kind kind;
};

template <FwdSm90Config kConfig>
struct FwdSm90Shared {
  static_assert(sizeof(FwdSm90Tile) <= FwdSm90Config::kTileBytes);
  static constexpr int kStages = kConfig.kv_stages();
  static constexpr int kQStages = kConfig.q_stages();
  static constexpr int kConsumers = FwdSm90Config::kConsumers;

  // Numbers of barriers among warps; 0 is that of the whole CTA.
  static constexpr int kAllDone = 1;  // consumers have done all that was given
  static constexpr int kConsumersOnly = 2;
  static constexpr int kTurn = 3;  // and one more: a warpgroup's turn to start products

  char* base;

  __forceinline__ explicit FwdSm90Shared(char* shared) : base(shared) {}

  __forceinline__ std::uint32_t q(int stage, int warpgroup) const {
    return shared_address(base) + (stage * kConsumers + warpgroup) * kConfig.q_bytes();
  }
  __forceinline__ std::uint32_t k(int stage) const {
    return shared_address(base) + kConfig.k_offset() + stage * kConfig.k_bytes();
  }
  __forceinline__ char* v(int stage) const { return base + kConfig.v_offset() + stage * kConfig.v_bytes(); }
  __forceinline__ FwdSm90Tile& tile(int slot) const {
    return *reinterpret_cast<FwdSm90Tile*>(base + kConfig.tiles_offset() + slot * FwdSm90Config::kTileBytes);
  }
  /// The tile that was given to this CTA as number `ordinal`.
  __forceinline__ volatile std::int32_t& given(int ordinal) const {
    return reinterpret_cast<std::int32_t*>(base + kConfig.given_offset())[ordinal];
  }
  /// 32 bits for as many ordinals: which to do again.
  __forceinline__ std::uint32_t* redo(int word) const {
    return reinterpret_cast<std::uint32_t*>(base + kConfig.redo_offset()) + word;
  }

  __forceinline__ std::uint32_t full_q(int stage, int warpgroup) const {
    return barrier(stage * kConsumers + warpgroup);
  }
  __forceinline__ std::uint32_t empty_q(int stage, int warpgroup) const {
    return barrier((kQStages + stage) * kConsumers + warpgroup);
  }
  __forceinline__ std::uint32_t full_k(int stage) const { return barrier(kKeyBarriers + stage); }
  __forceinline__ std::uint32_t empty_k(int stage) const { return barrier(kKeyBarriers + kStages + stage); }
  __forceinline__ std::uint32_t full_v(int stage) const { return barrier(kKeyBarriers + 2 * kStages + stage); }
  __forceinline__ std::uint32_t empty_v(int stage) const { return barrier(kKeyBarriers + 3 * kStages + stage); }
  __forceinline__ std::uint32_t tail() const { return barrier(kKeyBarriers + 4 * kStages); }

  __forceinline__ void init_barriers() const {
    for (int s = 0; s < kQStages; ++s)
      for (int w = 0; w < kConsumers; ++w) init_barrier(full_q(s, w), 1), init_barrier(empty_q(s, w), 4);
    for (int s = 0; s < kStages; ++s) {
      init_barrier(full_k(s), 1), init_barrier(empty_k(s), 4 * kConsumers);
      init_barrier(full_v(s), 1), init_barrier(empty_v(s), 4 * kConsumers);
    }
    init_barrier(tail(), 1);
    for (int word = 0; word < FwdSm90Config::kMostTiles / 32; ++word) *redo(word) = 0;
    publish_barriers();
  }

 private:
  static constexpr int kKeyBarriers = 2 * kQStages * kConsumers;  // the first of them

  __forceinline__ std::uint32_t barrier(int index) const {
    return shared_address(base) + kConfig.barriers_offset() + index * 8;
  }
};

/// Blocks of tile_n keys that a tile walks, from `first` down to `last`; first < last: none.
template <FwdSm90Config kConfig>
struct KeyBlocks {
  std::int32_t first, last;
  std::int32_t begin_whole, end_whole;  // every row sees all of the blocks of [begin_whole, end_whole)

  __forceinline__ explicit KeyBlocks(const WorkTile& tile) {
    constexpr int kTileN = kConfig.attention.tile_n;
    first = -1, last = 0;
    if (tile.begin_key < tile.end_key) first = (tile.end_key - 1) / kTileN, last = tile.begin_key / kTileN;
    begin_whole = (tile.begin_whole + kTileN - 1) / kTileN;
    end_whole = tile.end_whole / kTileN;
  }

  __forceinline__ bool whole(std::int32_t block) const { return block >= begin_whole && block < end_whole; }

  /// From here down to begin_whole blocks are weighed against a reference that stands: the first block that is seen
  /// whole gives one to every row.
  __forceinline__ std::int32_t first_deferred() const {
    if (!kConfig.defers_maximum()) return -1;
    return end_whole - 2 < first - 1 ? end_whole - 2 : first - 1;
  }
};

}  // namespace onchip::cuda
