// Keeps NaN and infinities in v to the rows that see their key. A hidden key has weight 0, but 0 · NaN is NaN: so where
// a tile of values holds such elements and some rows do not see all of it, they are added to the rows that do, one by
// one, and replaced by 0 before the product.
#pragma once

#include <cstdint>

#include "cuda/device/attn/scores.cuh"
#include "cuda/device/tile/load_tile.cuh"

namespace onchip::cuda {

template <PortableConfig kConfig>
class NotFinite {
 public:
  static constexpr Element kElement = kConfig.compute_type();
  static constexpr int kRowBytes = kConfig.v_row_bytes();
  static constexpr int kWords = kConfig.padded_head_dim_v() * element_bytes(kElement) / 4;

  /// Whether the tile of values has any; all threads of the CTA must call, and get the same answer.
  static __forceinline__ bool found(const char* s_v) {
    bool any = false;
    for_each_unit<kConfig.tile_n, kWords / 4, kConfig.threads()>([&](int row, int unit) {
      const uint4 words = *reinterpret_cast<const uint4*>(s_v + row * kRowBytes + unit * 16);
      any = any || not_finite<kElement>(words.x) || not_finite<kElement>(words.y) || not_finite<kElement>(words.z) ||
            not_finite<kElement>(words.w);
    });
    return __syncthreads_or(any);
  }

  template <int kValueTiles>
  static __forceinline__ void add_and_clear(float (&acc_o)[Scores<kConfig>::kRowTiles][kValueTiles][4], char* s_v,
                                            const Scores<kConfig>& scores, std::int32_t first_key) {
    const int thread = fresh_thread_index();
    const int first = Scores<kConfig>::first_warp_key(thread);
#pragma unroll 1
    for (int j = first; j < first + kConfig.keys_per_warp(); ++j) {
      unsigned visible = 0;
#pragma unroll
      for (int r = 0; r < Scores<kConfig>::kRows; ++r)
        visible |= static_cast<unsigned>(scores.visible(thread, r, first_key + j)) << r;
      const char* row = s_v + j * kRowBytes + Scores<kConfig>::tile_column(thread, 0, 0) * element_bytes(kElement);
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float value = element(row, n * 8 + c);
          if (fabsf(value) < kInfinity) continue;
#pragma unroll
          for (int r = 0; r < Scores<kConfig>::kRows; ++r)
            if (visible >> r & 1) acc_o[r / 2][n][r % 2 * 2 + c] += value;
        }
        asm volatile("" ::: "memory");  // one column tile at a time: loads ahead of need would take registers
      }
    }
    __syncthreads();
    for_each_unit<kConfig.tile_n, kWords, kConfig.threads()>([&](int row, int unit) {
      auto* word = reinterpret_cast<std::uint32_t*>(s_v + row * kRowBytes + unit * 4);
      *word = finite_part<kElement>(*word);
    });
    __syncthreads();
  }

 private:
  static __forceinline__ float element(const char* row, int column) {
    const char* address = row + column * element_bytes(kElement);
    if constexpr (kElement == Element::f32) return *reinterpret_cast<const float*>(address);
    return to_float<kElement>(*reinterpret_cast<const std::uint16_t*>(address));
  }
};

}  // namespace onchip::cuda
