// Products of a few queries with many keys, with the head dimension on lanes: for rows too few to fill a vector.
//
// Four keys at a time, so that four sums across lanes share their shuffles.
#if defined(ONCHIP_CPU_SIMD_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_DOT_INL_H_
#undef ONCHIP_CPU_SIMD_DOT_INL_H_
#else
#define ONCHIP_CPU_SIMD_DOT_INL_H_
#endif

#include <cstdint>

#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Keys that dot_keys() works on together.
inline constexpr int64_t kDotKeys = 4;

/// sums[0…3] = the sum across the lanes of a, b, c, e.
template <class D, class V, typename T = hn::TFromD<D>>
HWY_INLINE void sum_lanes_of_four([[maybe_unused]] D d, V a, V b, V c, V e, T* HWY_RESTRICT sums) {
#if HWY_TARGET == HWY_SCALAR
  sums[0] = hn::GetLane(a);
  sums[1] = hn::GetLane(b);
  sums[2] = hn::GetLane(c);
  sums[3] = hn::GetLane(e);
#else
  // Within each block of 128 bits: the sums of the block's lanes of a, b (and c, e). Then across the blocks.
  HWY_ALIGN T blocks[2 * hn::MaxLanes(D())];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::CappedTag<T, 16 / sizeof(T)> block;
  if constexpr (sizeof(T) == 4) {
    const hn::RepartitionToWide<D> dw;
    const auto pairs_ab = hn::BitCast(dw, ab), pairs_ce = hn::BitCast(dw, ce);
    const auto low = hn::BitCast(d, hn::InterleaveLower(dw, pairs_ab, pairs_ce));
    const auto high = hn::BitCast(d, hn::InterleaveUpper(dw, pairs_ab, pairs_ce));
    hn::Store(hn::Add(low, high), d, blocks);
    auto sum = hn::Load(block, blocks);
    for (int64_t at = 4; at < lanes; at += 4) sum = hn::Add(sum, hn::Load(block, blocks + at));
    hn::StoreU(sum, block, sums);
  } else {
    hn::Store(ab, d, blocks);
    hn::Store(ce, d, blocks + lanes);
    auto sum_ab = hn::Load(block, blocks), sum_ce = hn::Load(block, blocks + lanes);
    for (int64_t at = 2; at < lanes; at += 2) {
      sum_ab = hn::Add(sum_ab, hn::Load(block, blocks + at));
      sum_ce = hn::Add(sum_ce, hn::Load(block, blocks + lanes + at));
    }
    hn::StoreU(sum_ab, block, sums);
    hn::StoreU(sum_ce, block, sums + 2);
  }
#endif
}

/// scores[r·stride + 0…3] = q_r · k_0…3 for kRows rows of q. `depth` is in whole vectors.
template <int kRows, typename T>
HWY_INLINE void dot_four_keys(int64_t depth, const T* HWY_RESTRICT q, int64_t q_stride, const T* HWY_RESTRICT k0,
                              const T* HWY_RESTRICT k1, const T* HWY_RESTRICT k2, const T* HWY_RESTRICT k3,
                              T* HWY_RESTRICT scores, int64_t stride) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s00 = hn::Zero(d), s01 = s00, s02 = s00, s03 = s00;
  auto s10 = s00, s11 = s00, s12 = s00, s13 = s00;
  for (int64_t i = 0; i < depth; i += lanes) {
    const auto x0 = hn::LoadU(d, k0 + i), x1 = hn::LoadU(d, k1 + i), x2 = hn::LoadU(d, k2 + i),
               x3 = hn::LoadU(d, k3 + i);
    const auto q0 = hn::Load(d, q + i);
    s00 = hn::MulAdd(q0, x0, s00);
    s01 = hn::MulAdd(q0, x1, s01);
    s02 = hn::MulAdd(q0, x2, s02);
    s03 = hn::MulAdd(q0, x3, s03);
    if constexpr (kRows > 1) {
      const auto q1 = hn::Load(d, q + q_stride + i);
      s10 = hn::MulAdd(q1, x0, s10);
      s11 = hn::MulAdd(q1, x1, s11);
      s12 = hn::MulAdd(q1, x2, s12);
      s13 = hn::MulAdd(q1, x3, s13);
    }
  }
  sum_lanes_of_four(d, s00, s01, s02, s03, scores);
  if constexpr (kRows > 1) sum_lanes_of_four(d, s10, s11, s12, s13, scores + stride);
}

/// scores[r·score_stride + j] = q_r · k_j. Rows of q are aligned scratch; keys are k_stride apart, of any alignment,
/// `depth` elements in whole vectors. Scores have room for keys rounded up to kDotKeys.
template <typename T>
HWY_INLINE void dot_keys(int64_t rows, int64_t keys, int64_t depth, const T* HWY_RESTRICT q, int64_t q_stride,
                         const T* HWY_RESTRICT k, int64_t k_stride, T* HWY_RESTRICT scores, int64_t score_stride) {
  for (int64_t j = 0; j < keys; j += kDotKeys) {
    // Past the last key it is repeated: a key's bits do not depend on how many follow it.
    const int64_t last = keys - 1;
    const T* k0 = k + j * k_stride;
    const T* k1 = k + (j + 1 < last ? j + 1 : last) * k_stride;
    const T* k2 = k + (j + 2 < last ? j + 2 : last) * k_stride;
    const T* k3 = k + (j + 3 < last ? j + 3 : last) * k_stride;
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2) {
      dot_four_keys<2>(depth, q + r * q_stride, q_stride, k0, k1, k2, k3, scores + r * score_stride + j, score_stride);
    }
    if (r < rows) {
      dot_four_keys<1>(depth, q + r * q_stride, q_stride, k0, k1, k2, k3, scores + r * score_stride + j, score_stride);
    }
  }
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_DOT_INL_H_
