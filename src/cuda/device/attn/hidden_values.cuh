// Keeps NaN and infinities in a tile of values to the rows that see their key, for the Hopper kernel: a hidden key has
// weight 0, but 0 · NaN is NaN. Such elements are added to the rows that do see them, one by one, and replaced by 0
// before the product. Only for tiles that are done again.
#pragma once

#include "cuda/device/attn/scores.cuh"
#include "cuda/device/ptx/tensor_copy.cuh"
#include "cuda/device/ptx/warp_roles.cuh"
#include "cuda/device/tile/element_conversion.cuh"
#include "cuda/shared/fwd_sm90_config.hpp"

namespace onchip::cuda {

template <FwdSm90Config kConfig>
class HiddenValues {
 public:
  /// All consumers must call, for the same tile; kBarrier is one among them.
  template <int kBarrier, int kCount>
  static __forceinline__ void isolate(float (&acc_o)[kCount], char* s_v, const Scores<kConfig.attention>& scores,
                                      std::int32_t first_key) {
    bool any = false;
    for_each_word([&](int word) { any = any || not_finite<kElement>(*word_at(s_v, word)); });
    if (!meet_any<kBarrier, FwdSm90Config::kConsumerThreads>(any)) return;
    add(acc_o, s_v, scores, first_key);
    meet<kBarrier, FwdSm90Config::kConsumerThreads>();
    for_each_word([&](int word) {
      std::uint32_t* pair = word_at(s_v, word);
      *pair = finite_part<kElement>(*pair);
    });
    fence_shared_proxy();
    meet<kBarrier, FwdSm90Config::kConsumerThreads>();
  }

 private:
  static constexpr Element kElement = kConfig.attention.compute_type();
  static constexpr int kTileN = kConfig.attention.tile_n;
  static constexpr int kRowBytes = FwdSm90Config::kRowBytes;

  template <typename Body>
  static __forceinline__ void for_each_word(const Body& body) {
#pragma unroll 1
    for (int word = threadIdx.x; word < kConfig.v_bytes() / 4; word += FwdSm90Config::kConsumerThreads) body(word);
  }
  static __forceinline__ std::uint32_t* word_at(char* s_v, int word) {
    return reinterpret_cast<std::uint32_t*>(s_v) + word;
  }

  template <int kCount>
  static __forceinline__ void add(float (&acc_o)[kCount], char* s_v, const Scores<kConfig.attention>& scores,
                                  std::int32_t first_key) {
    const int thread = fresh_thread_index();
#pragma unroll 1
    for (int key = 0; key < kTileN; ++key) {
      const bool seen[2] = {scores.visible(thread, 0, first_key + key), scores.visible(thread, 1, first_key + key)};
#pragma unroll
      for (int n = 0; n < kCount / 4; ++n) {
        const std::uint32_t pair = columns(s_v, key, n, thread);
        if (!__any_sync(0xFFFFFFFF, not_finite<kElement>(pair))) continue;  // a branch: no two loads at once
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t bits = i % 2 ? pair >> 16 : pair & 0xFFFF;
          if (not_finite<kElement>(bits) && seen[i / 2]) acc_o[4 * n + i] += to_float<kElement>(bits);
        }
      }
    }
  }

  /// This thread's two columns of block n of 8, in the 128-byte swizzle: it exchanges the 16-byte units of a row.
  static __forceinline__ std::uint32_t columns(char* s_v, int key, int n, int thread) {
    char* row = s_v + n / 8 * kTileN * kRowBytes + key * kRowBytes + thread % 4 * 4;
    return *reinterpret_cast<const std::uint32_t*>(row + ((n ^ key) % 8) * 16);
  }
};

}  // namespace onchip::cuda
