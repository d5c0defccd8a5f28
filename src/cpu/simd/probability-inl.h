// From scores to probabilities and their gradients, for tiles [key][lane]:
//
//   P = exp2(unit·s − lse·log2(e)),   dS = P∘(dP − delta)
//
// Both terms of the exponent can be large where their difference is small, so each comes with what its rounding took
// off. A hidden score is −∞, and gets P = dS = 0 whatever lse, dP and delta are.
#if defined(ONCHIP_CPU_SIMD_PROBABILITY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_PROBABILITY_INL_H_
#undef ONCHIP_CPU_SIMD_PROBABILITY_INL_H_
#else
#define ONCHIP_CPU_SIMD_PROBABILITY_INL_H_
#endif

#include <cstdint>

#include "cpu/backward_kernel.hpp"
#include "cpu/simd/exp2-inl.h"
#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// In place: s becomes P, dp becomes dS. `rows` starts at the first lane; lanes is a multiple of the vector.
template <typename T>
HWY_NOINLINE void differentiate_tile(int64_t keys, int64_t lanes, double log2_unit, const RowStatistics<T>& rows,
                                     T* HWY_RESTRICT s, T* HWY_RESTRICT dp, int64_t stride) {
  const hn::ScalableTag<T> d;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
  const T rounded_unit = static_cast<T>(log2_unit);
  const auto unit = hn::Set(d, rounded_unit);
  const auto unit_rest = hn::Set(d, static_cast<T>(log2_unit - static_cast<double>(rounded_unit)));
  const auto hidden_score = hn::Neg(hn::Inf(d));
  for (int64_t lane = 0; lane < lanes; lane += vector) {
    const auto lse = hn::LoadU(d, rows.lse_log2 + lane);
    const auto lse_rest = hn::LoadU(d, rows.lse_log2_rest + lane);
    const auto delta = hn::LoadU(d, rows.delta + lane);
    for (int64_t key = 0; key < keys; ++key) {
      T* score = s + key * stride + lane;
      T* gradient = dp + key * stride + lane;
      const auto x = hn::Load(d, score);
      const auto hidden = hn::Eq(x, hidden_score);
      const auto rest = hn::MulSub(unit_rest, x, lse_rest);
      const auto p = hn::IfThenZeroElse(hidden, exp2(d, hn::Add(hn::MulSub(unit, x, lse), rest)));
      const auto difference = hn::Sub(hn::Load(d, gradient), delta);
      hn::Store(p, d, score);
      hn::Store(hn::IfThenZeroElse(hidden, hn::Mul(p, difference)), d, gradient);
    }
  }
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_PROBABILITY_INL_H_
