// Online softmax over a tile Sᵀ [key][lane]: each lane is one row of attention, keys arrive tile by tile.
//
// A lane keeps its maximum m and the sum l of exp2(unit·(s − m)), where unit > 0 is what a tile's number counts in
// log2(e). When a tile raises m, what was accumulated shrinks by exp2(unit·(m_old − m_new)). While a lane has seen no
// key (m = −∞), and where m = +∞, exp2 is taken of unit·s itself: so an empty row keeps l = 0, and a row with an
// infinite score gets l = +∞ as the definition has it. NaN and +∞ stay in their lane.
#if defined(ONCHIP_CPU_SIMD_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_SOFTMAX_INL_H_
#undef ONCHIP_CPU_SIMD_SOFTMAX_INL_H_
#else
#define ONCHIP_CPU_SIMD_SOFTMAX_INL_H_
#endif

#include <cstdint>

#include "cpu/simd/exp2-inl.h"
#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Statistics of each lane. `factor` is what the last tile multiplied older results by.
template <typename T>
struct SoftmaxState {
  T* HWY_RESTRICT row_max;
  T* HWY_RESTRICT row_sum;
  T* HWY_RESTRICT factor;

  SoftmaxState at(int64_t lane) const { return {row_max + lane, row_sum + lane, factor + lane}; }
};

template <typename T>
HWY_INLINE void reset_softmax(const SoftmaxState<T>& state, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    state.row_max[lane] = -hn::GetLane(hn::Inf(hn::ScalableTag<T>()));
    state.row_sum[lane] = 0;
  }
}

/// Maximum of one vector of lanes over the keys. In this order of operands x86 drops a NaN score, which its row's sum
/// will show.
template <class D, typename T>
HWY_INLINE hn::Vec<D> max_over_keys(D d, int64_t keys, const T* HWY_RESTRICT scores, int64_t stride) {
  auto max0 = hn::Neg(hn::Inf(d)), max1 = max0, max2 = max0, max3 = max0;
  int64_t key = 0;
  for (; key + 4 <= keys; key += 4) {
    const T* row = scores + key * stride;
    max0 = hn::Max(hn::Load(d, row), max0);
    max1 = hn::Max(hn::Load(d, row + stride), max1);
    max2 = hn::Max(hn::Load(d, row + 2 * stride), max2);
    max3 = hn::Max(hn::Load(d, row + 3 * stride), max3);
  }
  for (; key < keys; ++key) max0 = hn::Max(hn::Load(d, scores + key * stride), max0);
  return hn::Max(hn::Max(max0, max1), hn::Max(max2, max3));
}

/// Turns scores into exp2(unit·(s − m)) in place and updates the state. Returns whether a maximum rose, that is,
/// whether older results must be multiplied by `factor`; elsewhere the factor is 1.
template <typename T>
HWY_INLINE bool softmax_tile(int64_t keys, int64_t lanes, T* HWY_RESTRICT scores, int64_t stride, T unit,
                             const SoftmaxState<T>& state) {
  const hn::ScalableTag<T> d;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
  const auto units = hn::Set(d, unit);
  bool rose = false;
  for (int64_t lane = 0; lane < lanes; lane += vector) {
    const auto old_max = hn::Load(d, state.row_max + lane);
    const auto new_max = hn::Max(max_over_keys(d, keys, scores + lane, stride), old_max);
    const auto shift = hn::IfThenElseZero(hn::Lt(hn::Abs(new_max), hn::Inf(d)), new_max);
    // Differences first: products of large scores round by more than exp2 can take.
    const auto factor = exp2(d, hn::Mul(units, hn::Sub(old_max, shift)));
    rose = rose || !hn::AllFalse(d, hn::Gt(new_max, old_max));
    auto sum = hn::Zero(d);
    for (int64_t key = 0; key < keys; ++key) {
      T* score = scores + key * stride + lane;
      const auto p = exp2(d, hn::Mul(units, hn::Sub(hn::Load(d, score), shift)));
      sum = hn::Add(sum, p);
      hn::Store(p, d, score);
    }
    hn::Store(new_max, d, state.row_max + lane);
    hn::Store(hn::MulAdd(hn::Load(d, state.row_sum + lane), factor, sum), d, state.row_sum + lane);
    hn::Store(factor, d, state.factor + lane);
  }
  return rose;
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_SOFTMAX_INL_H_
