// Configuration of the Hopper forward kernel and its plan of shared memory: host and device read the same.
#pragma once

#include "cuda/shared/portable_config.hpp"

namespace onchip::cuda {

/// What one compiled kernel is specialised for. tile_m is 64 rows for each of two consumer warpgroups.
struct FwdSm90Config {
  PortableConfig attention;  // types, tile and features
  int capability = 90;       // tells these bytes from those of other kernels' configurations

  static constexpr int kChunk = 64;      // columns that a row of 128 bytes holds; wider tiles are several of these
  static constexpr int kRowBytes = 128;  // so of the 128-byte swizzle
  static constexpr int kWarpgroupRows = 64;
  static constexpr int kConsumers = 2;         // warpgroups
  static constexpr int kSharedBytes = 232448;  // of a CTA on sm_90
  static constexpr int kWarpgroup = 128;       // threads
  static constexpr int kConsumerThreads = kConsumers * kWarpgroup;
  static constexpr int kThreads = kConsumerThreads + kWarpgroup;
  static constexpr int kTileBytes = 128;  // room for one description of a work tile
  static constexpr int kMostTiles = 512;  // that one CTA does

  constexpr int qk_chunks() const { return (attention.head_dim + kChunk - 1) / kChunk; }
  constexpr int v_chunks() const { return (attention.head_dim_v + kChunk - 1) / kChunk; }
  constexpr int q_bytes() const { return qk_chunks() * kWarpgroupRows * kRowBytes; }  // of one warpgroup
  constexpr int k_bytes() const { return qk_chunks() * attention.tile_n * kRowBytes; }
  constexpr int v_bytes() const { return v_chunks() * attention.tile_n * kRowBytes; }

  /// Tiles of q at a time: two where there is room, so that the next is there before the last is done with.
  constexpr int q_stages() const { return fits(2, 2) ? 2 : 1; }
  /// Tiles of k, and of v, in flight.
  constexpr int kv_stages() const { return fits(q_stages(), 4) ? 4 : fits(q_stages(), 3) ? 3 : 2; }
  /// Descriptions of work tiles: consumers are still at one when they release its q.
  constexpr int tile_slots() const { return q_stages() + 1; }

  constexpr int k_offset() const { return q_stages() * kConsumers * q_bytes(); }
  constexpr int v_offset() const { return k_offset() + kv_stages() * k_bytes(); }
  constexpr int tiles_offset() const { return v_offset() + kv_stages() * v_bytes(); }
  constexpr int barriers_offset() const { return tiles_offset() + tile_slots() * kTileBytes; }
  /// full and empty of q for each warpgroup and stage, of k and of v for each stage, and one for the tail of v.
  constexpr int barriers() const { return 2 * kConsumers * q_stages() + 4 * kv_stages() + 1; }
  /// Numbers of the tiles that the CTA was given, and a bit for each that is to be done again.
  constexpr int given_offset() const { return barriers_offset() + barriers() * 8; }
  constexpr int redo_offset() const { return given_offset() + kMostTiles * 4; }
  constexpr int shared_bytes() const { return redo_offset() + kMostTiles / 8; }

  /// Registers of a consumer thread for scores, weights in 16 bits, and output.
  constexpr int accumulator_registers() const {
    return attention.tile_n / 2 + attention.tile_n / 4 + attention.padded_head_dim_v() / 2;
  }

  /// Rows of v past the sequence's end are not zeros of the copy engine's but somebody's data.
  constexpr bool clears_tail() const { return attention.packed_k || attention.seqused_k; }

  /// Scores of tiles that no row sees whole need a maximum of their own: any of them may be −∞.
  constexpr bool defers_maximum() const { return !attention.mask && attention.bias_type == Element::none; }

 private:
  static constexpr int kMostBookkeeping = 3072;  // bytes after the tiles

  constexpr bool fits(int of_q, int of_kv) const {
    return of_q * kConsumers * q_bytes() + of_kv * (k_bytes() + v_bytes()) + kMostBookkeeping <= kSharedBytes;
  }
};

}  // namespace onchip::cuda
