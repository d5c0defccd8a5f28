// From products to logits: scale, softcap, bias, ALiBi, and what each row may see.
#pragma once

#include <cstdint>

#include "cuda/device/attn/work_tile.cuh"
#include "cuda/device/ptx/thread_index.cuh"
#include "cuda/device/tile/element_conversion.cuh"

namespace onchip::cuda {

/// Scores of the rows of one thread, in the accumulator layout of tile/products.cuh.
template <PortableConfig kConfig>
class Scores {
 public:
  static constexpr int kRowTiles = kConfig.rows_per_warp() / 16;
  static constexpr int kColTiles = kConfig.keys_per_warp() / 8;
  static constexpr int kRows = kRowTiles * 2;  // of one thread
  using Accumulator = float[kRowTiles][kColTiles][4];

  __forceinline__ Scores(const PortableParams& p, const WorkTile& tile) : p_(p), tile_(tile) {}

  /// Row of the tile that row r of a thread is; column of o, and key of the step, that element c of its column tile n
  /// is.
  static __forceinline__ int tile_row(int thread, int r) {
    return thread / 32 / kConfig.key_warps * kConfig.rows_per_warp() + r / 2 * 16 + r % 2 * 8 + thread % 32 / 4;
  }
  static __forceinline__ int tile_column(int thread, int n, int c) { return n * 8 + thread % 4 * 2 + c; }
  static __forceinline__ int tile_key(int thread, int n, int c) {
    return first_warp_key(thread) + tile_column(thread, n, c);
  }
  /// The first of the keys that a thread's warp takes of each step.
  static __forceinline__ int first_warp_key(int thread) {
    return kConfig.key_warps == 1 ? 0 : thread / 32 % kConfig.key_warps * kConfig.keys_per_warp();
  }

  /// What a score is multiplied by to become an exponent of 2.
  __forceinline__ float exponent_factor() const { return kConfig.general_scores() ? 1.0f : p_.scale_log2e; }

  /// Turns products with the keys from first_key on into logits over exponent_factor(). With kMasked, keys that a row
  /// may not see, and those past the end, get −∞; without, the caller knows that there are none.
  template <bool kMasked>
  __forceinline__ void finish(Accumulator& acc_s, std::int32_t first_key) const {
    const int thread = fresh_thread_index();
    const std::int32_t first = first_key + tile_key(thread, 0, 0);
    if constexpr (kConfig.k_token_scale) scale_keys(acc_s, first);
    if constexpr (kConfig.general_scores()) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) add_terms(acc_s, r, clamped_owner(thread, r), first);
    }
    if constexpr (kMasked)
#pragma unroll
      for (int r = 0; r < kRows; ++r) hide(acc_s, r, clamped_owner(thread, r), first);
  }

  /// Whether row r of a thread sees `key`; keys past the end are not seen.
  __forceinline__ bool visible(int thread, int r, std::int32_t key) const {
    const RowOwner<kConfig> owner = clamped_owner(thread, r);
    return visible(keys(owner), mask_row(owner), key);
  }

 private:
  // `first` is the key of the thread's first column.
  __forceinline__ void scale_keys(Accumulator& acc_s, std::int32_t first) const {
    const KeyRows<kConfig.paged> scales(tile_, p_, p_.k_scale, p_.k_scale_layout);
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const std::int32_t key = first + n * 8 + c;
        const float scale = key < tile_.seqlen_k ? *reinterpret_cast<const float*>(scales.address(key)) : 1.0f;
#pragma unroll
        for (int r = 0; r < kRows; ++r) acc_s[r / 2][n][r % 2 * 2 + c] *= scale;
      }
  }

  /// What a product is multiplied by, as an exponent of 2.
  __forceinline__ float product_factor() const {
    if constexpr (!kConfig.k_scale || kConfig.k_token_scale) return p_.scale_log2e;
    const char* scale = p_.k_scale + p_.k_scale_layout.offset(tile_.batch, 0, tile_.head_kv);
    return p_.scale_log2e * *reinterpret_cast<const float*>(scale);
  }

  /// Products become logits, with one rounding of the sum: large logits leave no digits to lose.
  __forceinline__ void add_terms(Accumulator& acc_s, int r, const RowOwner<kConfig>& owner, std::int32_t first) const {
    const float factor = product_factor();
    const char* bias = p_.bias + p_.bias_layout.offset(tile_.batch, owner.query, owner.head);
    float slope = 0;
    if constexpr (kConfig.alibi)
      slope = -kLog2E *
              *reinterpret_cast<const float*>(p_.alibi_slopes + p_.slope_layout.offset(tile_.batch, 0, owner.head));
    const std::int32_t position = owner.query + tile_.shift;
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const std::int32_t key = first + n * 8 + c;
        float term = 0;
        if constexpr (kConfig.bias_type != Element::none)
          if (key < tile_.seqlen_k) term = kLog2E * load_element<kConfig.bias_type>(bias, key);
        if constexpr (kConfig.alibi) term = fmaf(slope, static_cast<float>(abs(position - key)), term);
        float& s = acc_s[r / 2][n][r % 2 * 2 + c];
        if constexpr (kConfig.softcap)
          s = fmaf(p_.softcap_log2e, tanh_accurate(s * factor / p_.softcap_log2e), term);
        else
          s = fmaf(s, factor, term);
      }
  }

  __forceinline__ void hide(Accumulator& acc_s, int r, const RowOwner<kConfig>& owner, std::int32_t first) const {
    const Keys range = keys(owner);
    const std::int32_t begin = range.begin - first, end = range.end - first;  // compared with constants
    const char* mask = mask_row(owner) + first;
#pragma unroll
    for (int n = 0; n < kColTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const std::int32_t key = n * 8 + c;
        if (!visible({begin, end}, mask, key)) acc_s[r / 2][n][r % 2 * 2 + c] = -kInfinity;
      }
  }

  /// Rows past the last query repeat it: their results are dropped, and what they read exists.
  __forceinline__ RowOwner<kConfig> clamped_owner(int thread, int r) const {
    const int row = tile_row(thread, r);
    return {tile_, row < tile_.num_rows ? row : tile_.num_rows - 1};
  }

  __forceinline__ const char* mask_row(const RowOwner<kConfig>& owner) const {
    return p_.mask + p_.mask_layout.offset(tile_.batch, owner.query, owner.head);
  }

  struct Keys {
    std::int32_t begin, end;
  };

  /// The keys that the window and the sequence's length leave to a row.
  __forceinline__ Keys keys(const RowOwner<kConfig>& owner) const {
    if constexpr (!kConfig.bounded) return {0, tile_.seqlen_k};
    const KeyRange range = tile_.mask(p_).keys(owner.query);
    return {static_cast<std::int32_t>(range.begin), static_cast<std::int32_t>(range.end)};
  }

  static __forceinline__ bool visible(const Keys& range, const char* mask, std::int32_t key) {
    const bool in_range = key >= range.begin && key < range.end;
    if constexpr (kConfig.mask) return in_range && __ldg(reinterpret_cast<const std::uint8_t*>(mask) + key) != 0;
    return in_range;
  }

  const PortableParams& p_;
  const WorkTile& tile_;
};

}  // namespace onchip::cuda
