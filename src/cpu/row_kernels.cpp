#include "cpu/row_kernels.hpp"

#include <cmath>

#include "cpu/query_block.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_kernels.cpp"
#include "cpu/simd/targets.hpp"  // before Highway
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "cpu/simd/convert-inl.h"
#include "cpu/simd/exp2-inl.h"
#include "cpu/simd/score_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
bool finite(const T* row, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);  // x·0 is 0, or NaN for NaN and infinities
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::MulAdd(hn::LoadU(d, row + i), hn::Zero(d), sum);
  T rest = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) rest += row[i] * T{0};
  return rest == T{0};
}

template <typename T>
T square_sum(const T* row, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, row + i);
    sums = hn::MulAdd(x, x, sums);
  }
  T sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += row[i] * row[i];
  return sum;
}

template <typename T>
void add(const T* row, int64_t n, T* acc) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, acc + i), hn::LoadU(d, row + i)), d, acc + i);
  for (; i < n; ++i) acc[i] += row[i];
}

template <typename T>
T dot(const T* a, const T* b, int64_t n) {
  const hn::CappedTag<T, 1> d;
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < n; ++i) sum = hn::MulAdd(hn::Set(d, a[i]), hn::Set(d, b[i]), sum);
  return hn::GetLane(sum);
}

/// The keys of a row that its visible ones lie among, in whole vectors.
template <typename T>
HWY_INLINE KeyRange whole_vectors(const ScoreRow<T>& row) {
  if (row.visible.empty()) return {0, 0};
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  return {row.visible.begin / lanes * lanes, (row.visible.end + lanes - 1) / lanes * lanes};
}

template <typename T>
HWY_INLINE void clear_outside(KeyRange kept, int64_t n, T* row) {
  for (int64_t j = 0; j < kept.begin; ++j) row[j] = T{0};
  for (int64_t j = kept.end; j < padded<T>(n); ++j) row[j] = T{0};
}

/// Products to scores in place, −∞ for hidden keys. Returns the largest; NaN is passed over, the sum will show it.
template <typename T>
HWY_INLINE T scores_in_place(const ScoreRow<T>& row, KeyRange keys, T* s) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto minus_infinity = hn::Neg(hn::Inf(d));
  auto max = minus_infinity;
  auto slope = hn::Zero(d);
  auto hidden = hn::Eq(slope, slope);
  for (int64_t j = keys.begin; j < keys.end; j += lanes) {
    const auto score = score_keys(d, row, hn::Load(d, s + j), j, slope, hidden);
    const auto x = hn::IfThenElse(hidden, minus_infinity, score);
    max = hn::Max(x, max);
    hn::Store(x, d, s + j);
  }
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

template <typename T>
RowSoftmax<T> softmax(const ScoreRow<T>& row, T sink, int64_t n, T* s) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const KeyRange keys = whole_vectors(row);
  clear_outside(keys, n, s);
  T max = scores_in_place(row, keys, s);
  if (sink > max) max = sink;
  const T shift = std::isfinite(max) ? max : T{0};
  const auto shifts = hn::Set(d, shift);
  const auto log2e = hn::Set(d, static_cast<T>(kLog2E));
  auto sums = hn::Zero(d);
  for (int64_t j = keys.begin; j < keys.end; j += lanes) {
    const auto e = exp2(d, hn::Mul(hn::Sub(hn::Load(d, s + j), shifts), log2e));
    sums = hn::Add(sums, e);
    hn::Store(e, d, s + j);
  }
  const double sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sums))) +
                     std::exp(static_cast<double>(sink) - static_cast<double>(shift));
  const T factor = static_cast<T>(sum == 0.0 ? 0.0 : 1.0 / sum);
  const auto inverse = hn::Set(d, factor);
  for (int64_t j = keys.begin; j < keys.end; j += lanes) {
    const auto e = hn::Load(d, s + j);
    hn::Store(hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), hn::Mul(e, inverse)), d, s + j);
  }
  return {static_cast<T>(static_cast<double>(shift) + std::log(sum)), shift, factor};
}

template <typename T>
void softmax_backward(const ScoreRow<T>& row, const RowSoftmax<T>& softmax, T delta, int64_t n, T* s, T* g, T* dbias) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // lse is −∞ where no key is left: nothing flows through such a row, whatever dout holds.
  const KeyRange keys = softmax.lse == -hn::GetLane(hn::Inf(d)) ? KeyRange{0, 0} : whole_vectors(row);
  clear_outside(keys, n, s);
  clear_outside(keys, n, g);
  const auto log2e = hn::Set(d, static_cast<T>(kLog2E));
  auto slope = hn::Zero(d);
  auto hidden = hn::Eq(slope, slope);
  for (int64_t j = keys.begin; j < keys.end; j += lanes) {
    const auto score = score_keys(d, row, hn::Load(d, s + j), j, slope, hidden);
    const auto e = exp2(d, hn::Mul(hn::Sub(score, hn::Set(d, softmax.shift)), log2e));
    const auto p = hn::IfThenZeroElse(hidden, hn::Mul(e, hn::Set(d, softmax.factor)));
    auto ds = hn::IfThenZeroElse(hidden, hn::Mul(p, hn::Sub(hn::Load(d, g + j), hn::Set(d, delta))));
    hn::Store(p, d, s + j);
    if (dbias != nullptr) hn::Store(hn::Add(hn::Load(d, dbias + j), ds), d, dbias + j);
    if (row.softcap > 0) ds = hn::IfThenZeroElse(hidden, hn::Mul(ds, slope));
    hn::Store(ds, d, g + j);
  }
}

template <typename T>
RowKernels<T> table() {
  return {&load_row<T>, &store_row<T>, &finite<T>, &square_sum<T>, &add<T>, &dot<T>, &softmax<T>, &softmax_backward<T>};
}

RowKernels<float> float_table() { return table<float>(); }
RowKernels<double> double_table() { return table<double>(); }

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onchip::cpu {

HWY_EXPORT(float_table);
HWY_EXPORT(double_table);

template <>
const RowKernels<float>& row_kernels() {
  static const RowKernels<float> kernels = HWY_DYNAMIC_DISPATCH(float_table)();
  return kernels;
}

template <>
const RowKernels<double>& row_kernels() {
  static const RowKernels<double> kernels = HWY_DYNAMIC_DISPATCH(double_table)();
  return kernels;
}

}  // namespace onchip::cpu
#endif  // HWY_ONCE
