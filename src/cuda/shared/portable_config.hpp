// Configuration of the portable forward kernel and its plan of shared memory: host and device read the same.
#pragma once

#include <cstdint>

#include "cuda/shared/element.hpp"

namespace onchip::cuda {

/// How the two products are computed. Accumulators are f32 always.
enum class Math { bf16, f16, tf32, f32 };

/// What a CTA writes: rows of o and lse, or, of one split of the keys, their sums and the states to merge them by.
enum class Output { whole, partial };

constexpr int pad_to(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

/// What one compiled kernel is specialised for. Everything else is a parameter of the launch.
struct PortableConfig {
  Element q_type = Element::bf16;
  Element kv_type = Element::bf16;
  Element o_type = Element::bf16;
  Element bias_type = Element::none;
  Math math = Math::bf16;
  Output output = Output::whole;

  int head_dim = 0;        // of q and k
  int head_dim_v = 0;      // columns of v that one CTA computes
  int head_dim_chunk = 0;  // columns of q and k in shared memory at a time; head_dim padded when all are
  int tile_m = 0;          // query rows of a CTA
  int tile_n = 0;          // keys of a step
  int warps = 0;
  int key_warps = 1;    // warps that share rows; each takes its part of a step's keys, and they merge at the end
  int num_stages = 1;   // 1: k and v of a step are loaded in turns; more: whole steps ahead
  int ctas_per_sm = 1;  // that registers must leave room for

  // Bytes that rows of each tensor can be moved in: the largest power of two up to 16 that divides addresses and sizes.
  int q_copy_bytes = 16;
  int k_copy_bytes = 16;
  int v_copy_bytes = 16;
  int o_copy_bytes = 16;

  int heads_per_tile = 1;  // query heads of one KV head that share a tile's rows: row = query · heads_per_tile + head
  bool packed_q = false;
  bool packed_k = false;
  bool paged = false;
  bool seqused_k = false;
  bool bounded = false;        // causal or a window
  bool general_scale = false;  // softmax_scale ≤ 0, which cannot be folded into the exponent
  bool softcap = false;
  bool alibi = false;
  bool mask = false;
  bool k_scale = false;
  bool k_token_scale = false;  // one scale a key, else one for all keys of a tile
  bool v_token_scale = false;

  constexpr int threads() const { return warps * 32; }
  constexpr int rows_per_warp() const { return tile_m / (warps / key_warps); }
  constexpr int keys_per_warp() const { return tile_n / key_warps; }
  constexpr int padded_head_dim() const { return pad_to(head_dim, 16); }
  constexpr int padded_head_dim_v() const { return pad_to(head_dim_v, 16); }
  constexpr int num_chunks() const { return (padded_head_dim() + head_dim_chunk - 1) / head_dim_chunk; }
  constexpr bool converts_q() const { return q_type != compute_type(); }
  constexpr bool converts_kv() const { return kv_type != compute_type(); }

  /// What q, k and v are stored as in shared memory.
  constexpr Element compute_type() const {
    return math == Math::bf16 ? Element::bf16 : math == Math::f16 ? Element::f16 : Element::f32;
  }

  /// Scores go through more than a multiplication by a positive number.
  constexpr bool general_scores() const {
    return general_scale || softcap || alibi || k_scale || bias_type != Element::none;
  }

  // Rows in shared memory are 16 bytes longer than their data: then the eight rows that ldmatrix or a quarter of a warp
  // reads at once lie in different banks, at any head dimension.
  constexpr int qk_row_bytes() const { return head_dim_chunk * element_bytes(compute_type()) + 16; }
  constexpr int v_row_bytes() const { return padded_head_dim_v() * element_bytes(compute_type()) + 16; }
  constexpr int o_row_bytes() const { return padded_head_dim_v() * element_bytes(o_type) + 16; }

  /// k and v of 8 bits arrive in shared memory as they are stored, asynchronously, and are converted there. Rows that
  /// are not aligned to 4 bytes, and chunks, pass through registers instead.
  constexpr bool converts_in_shared() const {
    return element_bytes(kv_type) == 1 && k_copy_bytes >= 4 && v_copy_bytes >= 4 && num_chunks() == 1;
  }
  constexpr int stored_k_row_bytes() const { return converts_in_shared() ? padded_head_dim() + 16 : qk_row_bytes(); }
  constexpr int stored_v_row_bytes() const { return converts_in_shared() ? padded_head_dim_v() + 16 : v_row_bytes(); }

  // Shared memory: q; where they are converted, k and v of the step at work; the stages of k and v. At the end, in the
  // same place: partial sums and states of the warps that share rows; the tile of o.
  constexpr int k_offset() const { return tile_m * qk_row_bytes(); }
  constexpr int v_offset() const { return k_offset() + tile_n * qk_row_bytes(); }
  constexpr int stages_offset() const {
    return converts_in_shared() ? v_offset() + tile_n * v_row_bytes() : k_offset();
  }
  constexpr int stage_bytes() const { return tile_n * (stored_k_row_bytes() + stored_v_row_bytes()); }
  constexpr int stage_k_offset(int stage) const { return stages_offset() + stage * stage_bytes(); }
  constexpr int stage_v_offset(int stage) const { return stage_k_offset(stage) + tile_n * stored_k_row_bytes(); }

  constexpr int states_offset() const { return key_warps > 1 ? key_warps * tile_m * padded_head_dim_v() * 4 : 0; }
  constexpr int o_offset() const { return states_offset() + (key_warps > 1 ? key_warps * tile_m * 8 : 0); }

  constexpr int shared_bytes() const {
    const int inputs = stage_k_offset(num_stages);
    const int outputs = o_offset() + tile_m * o_row_bytes();
    return inputs > outputs ? inputs : outputs;
  }
};

}  // namespace onchip::cuda
