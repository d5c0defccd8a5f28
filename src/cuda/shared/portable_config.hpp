// Configuration of the portable forward kernel and its plan of shared memory: host and device read the same.
#pragma once

#include <cstdint>

namespace onchip::cuda {

enum class Element { none, f32, bf16, f16, e4m3, e5m2, i8 };

constexpr int element_bytes(Element element) {
  switch (element) {
    case Element::f32:
      return 4;
    case Element::bf16:
    case Element::f16:
      return 2;
    case Element::e4m3:
    case Element::e5m2:
    case Element::i8:
      return 1;
    case Element::none:
      break;
  }
  return 0;
}

/// How the two products are computed. Accumulators are f32 always.
enum class Math { bf16, f16, tf32, f32 };

constexpr int pad_to(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

/// What one compiled kernel is specialised for. Everything else is a parameter of the launch.
struct PortableConfig {
  Element q_type = Element::bf16;
  Element kv_type = Element::bf16;
  Element o_type = Element::bf16;
  Element bias_type = Element::none;
  Math math = Math::bf16;

  int head_dim = 0;        // of q and k
  int head_dim_v = 0;      // columns of v that one CTA computes
  int head_dim_chunk = 0;  // columns of q and k in shared memory at a time; head_dim padded when all are
  int tile_m = 0;          // query rows of a CTA
  int tile_n = 0;          // keys of a step
  int warps = 0;
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
  constexpr int rows_per_warp() const { return tile_m / warps; }
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

  constexpr int k_offset() const { return tile_m * qk_row_bytes(); }
  constexpr int v_offset() const { return k_offset() + tile_n * qk_row_bytes(); }
  /// q, k and v; the output tile takes their place at the end.
  constexpr int shared_bytes() const {
    const int inputs = v_offset() + tile_n * v_row_bytes();
    const int outputs = tile_m * o_row_bytes();
    return inputs > outputs ? inputs : outputs;
  }
};

}  // namespace onchip::cuda
