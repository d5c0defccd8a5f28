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

#include "cpu/prefetch.hpp"
#include "cpu/simd/convert-inl.h"
#include "cpu/simd/gemm-inl.h"
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

/// Queries that share a key once it is read, and whose sums fit into registers beside it.
inline constexpr int64_t kDotRows = kManyRegisters ? 4 : 2;

/// Adds q_r · (kVectors vectors of one key) to the sums of kRows rows of q.
template <int kRows, int kVectors, class D, typename T, typename Element, class V>
HWY_INLINE void add_products(D d, const T* HWY_RESTRICT q, int64_t q_stride, const Element* HWY_RESTRICT key, V& s0,
                             V& s1, V& s2, V& s3) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  read_vectors<kVectors>(d, key, [&](auto index, auto x) ONCHIP_INLINE_LAMBDA {
    const T* HWY_RESTRICT at = q + index * lanes;
    s0 = hn::MulAdd(hn::Load(d, at), x, s0);
    if constexpr (kRows > 1) s1 = hn::MulAdd(hn::Load(d, at + q_stride), x, s1);
    if constexpr (kRows > 2) s2 = hn::MulAdd(hn::Load(d, at + 2 * q_stride), x, s2);
    if constexpr (kRows > 2) s3 = hn::MulAdd(hn::Load(d, at + 3 * q_stride), x, s3);
  });
}

/// scores[r·stride + 0…3] = q_r · k_j…j+3 for kRows (1, 2 or 4) rows of q. `depth` is in whole vectors. Past the last
/// of `keys` keys it is repeated: a key's bits do not depend on how many follow it.
template <int kRows, typename T, typename Element>
HWY_INLINE void dot_four_keys(int64_t keys, int64_t j, int64_t depth, const T* HWY_RESTRICT q, int64_t q_stride,
                              const RowRun<Element>& k, T* HWY_RESTRICT scores, int64_t stride) {
  const int64_t left = keys - j;
  const Element* HWY_RESTRICT k0 = k.first + j * k.stride;
  const Element* HWY_RESTRICT k1 = left > 1 ? k0 + k.stride : k0;
  const Element* HWY_RESTRICT k2 = left > 2 ? k1 + k.stride : k1;
  const Element* HWY_RESTRICT k3 = left > 3 ? k2 + k.stride : k2;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s00 = hn::Zero(d), s01 = s00, s02 = s00, s03 = s00, s10 = s00, s11 = s00, s12 = s00, s13 = s00;
  auto s20 = s00, s21 = s00, s22 = s00, s23 = s00, s30 = s00, s31 = s00, s32 = s00, s33 = s00;
  int64_t i = 0;
  for (; i + 4 * lanes <= depth; i += 4 * lanes) {
    for (int64_t key = 0; key < kDotKeys; ++key) k.prefetch(j + key, i, 4 * lanes);
    add_products<kRows, 4>(d, q + i, q_stride, k0 + i, s00, s10, s20, s30);
    add_products<kRows, 4>(d, q + i, q_stride, k1 + i, s01, s11, s21, s31);
    add_products<kRows, 4>(d, q + i, q_stride, k2 + i, s02, s12, s22, s32);
    add_products<kRows, 4>(d, q + i, q_stride, k3 + i, s03, s13, s23, s33);
  }
  for (; i < depth; i += lanes) {
    add_products<kRows, 1>(d, q + i, q_stride, k0 + i, s00, s10, s20, s30);
    add_products<kRows, 1>(d, q + i, q_stride, k1 + i, s01, s11, s21, s31);
    add_products<kRows, 1>(d, q + i, q_stride, k2 + i, s02, s12, s22, s32);
    add_products<kRows, 1>(d, q + i, q_stride, k3 + i, s03, s13, s23, s33);
  }
  sum_lanes_of_four(d, s00, s01, s02, s03, scores);
  if constexpr (kRows > 1) sum_lanes_of_four(d, s10, s11, s12, s13, scores + stride);
  if constexpr (kRows > 2) sum_lanes_of_four(d, s20, s21, s22, s23, scores + 2 * stride);
  if constexpr (kRows > 2) sum_lanes_of_four(d, s30, s31, s32, s33, scores + 3 * stride);
}

/// kRows rows of q with every key.
template <int kRows, typename T, typename Element>
HWY_NOINLINE void dot_rows(int64_t keys, int64_t depth, const T* HWY_RESTRICT q, int64_t q_stride,
                           const RowRun<Element>& k, T* HWY_RESTRICT scores, int64_t score_stride) {
  for (int64_t j = 0; j < keys; j += kDotKeys)
    dot_four_keys<kRows>(keys, j, depth, q, q_stride, k, scores + j, score_stride);
}

/// scores[r·score_stride + j] = q_r · k_j. Rows of q are aligned scratch; keys are of any alignment and type, `depth`
/// elements in whole vectors. Scores have room for keys rounded up to kDotKeys.
template <typename T, typename Element>
HWY_INLINE void dot_keys(int64_t rows, int64_t keys, int64_t depth, const T* HWY_RESTRICT q, int64_t q_stride,
                         const RowRun<Element>& k, T* HWY_RESTRICT scores, int64_t score_stride) {
  const RowRun<Element> again{k.first, k.stride};
  int64_t r = 0;
  if constexpr (kDotRows == 4) {
    for (; r + 4 <= rows; r += 4)
      dot_rows<4>(keys, depth, q + r * q_stride, q_stride, r == 0 ? k : again, scores + r * score_stride, score_stride);
  }
  for (; r + 2 <= rows; r += 2)
    dot_rows<2>(keys, depth, q + r * q_stride, q_stride, r == 0 ? k : again, scores + r * score_stride, score_stride);
  if (r < rows)
    dot_rows<1>(keys, depth, q + r * q_stride, q_stride, r == 0 ? k : again, scores + r * score_stride, score_stride);
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_DOT_INL_H_
