// The scores of one query with keys on SIMD lanes. (score-inl.h has the same terms with queries on lanes.)
#if defined(ONCHIP_CPU_SIMD_SCORE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_SCORE_ROW_INL_H_
#undef ONCHIP_CPU_SIMD_SCORE_ROW_INL_H_
#else
#define ONCHIP_CPU_SIMD_SCORE_ROW_INL_H_
#endif

#include <cstdint>

#include "cpu/row_kernels.hpp"
#include "cpu/simd/exp2-inl.h"
#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Scores of the keys from j on, one in each lane; `hidden` tells which do not count. With a softcap, `slope` is its
/// derivative, 1 − tanh².
template <class D, typename T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE V score_keys(D d, const ScoreRow<T>& row, V products, int64_t j, V& slope, hn::Mask<D>& hidden) {
  auto score = hn::Mul(products, hn::Set(d, row.scale));
  if (row.softcap > 0) {
    score = hn::Mul(tanh(d, hn::Div(score, hn::Set(d, row.softcap)), slope), hn::Set(d, row.softcap));
  }
  const auto lane = hn::Iota(d, T{0});
  if (row.bias != nullptr) score = hn::Add(score, hn::Load(d, row.bias + j));
  if (row.slope != T{0}) {
    const auto distance = hn::Abs(hn::Sub(hn::Set(d, row.position - static_cast<T>(j)), lane));
    score = hn::NegMulAdd(hn::Set(d, row.slope), distance, score);
  }
  const auto before = hn::Lt(lane, hn::Set(d, static_cast<T>(row.visible.begin - j)));
  const auto after = hn::Ge(lane, hn::Set(d, static_cast<T>(row.visible.end - j)));
  hidden = hn::Or(before, after);
  if (row.mask != nullptr) hidden = hn::Or(hidden, hn::Eq(hn::Load(d, row.mask + j), hn::Zero(d)));
  return score;
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_SCORE_ROW_INL_H_
