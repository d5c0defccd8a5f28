// Sums of many values weighted by few rows of probabilities, with the head dimension on lanes. Values are used where
// they lie, converted in registers; gemm-inl.h, which reads a value once for every eight rows, takes over where it pays
// to convert them to scratch first.
#if defined(ONCHIP_CPU_SIMD_WEIGHTED_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_WEIGHTED_SUM_INL_H_
#undef ONCHIP_CPU_SIMD_WEIGHTED_SUM_INL_H_
#else
#define ONCHIP_CPU_SIMD_WEIGHTED_SUM_INL_H_
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

/// Whether add_weighted() takes so many rows.
constexpr bool is_few_rows(int64_t rows) { return rows == 1 || rows == 2 || (kManyRegisters && rows == 4); }

/// Sums of kVectors vectors of lanes. Eight or more hide the latency of a multiply-add: those of two or four rows, or
/// of one row over even and over odd keys.
template <int kRows, int kVectors, typename T, typename Element>
HWY_INLINE void add_weighted_block(int64_t keys, int64_t lane, const T* HWY_RESTRICT p, int64_t p_stride,
                                   const RowRun<Element>& values, T* HWY_RESTRICT o, int64_t o_stride) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  auto c0 = a0, c1 = a0, c2 = a0, c3 = a0, e0 = a0, e1 = a0, e2 = a0, e3 = a0;
  const auto add = [&](auto index, auto weight, auto x, auto& s0, auto& s1, auto& s2, auto& s3) ONCHIP_INLINE_LAMBDA {
    if constexpr (index == 0) s0 = hn::MulAdd(weight, x, s0);
    if constexpr (index == 1) s1 = hn::MulAdd(weight, x, s1);
    if constexpr (index == 2) s2 = hn::MulAdd(weight, x, s2);
    if constexpr (index == 3) s3 = hn::MulAdd(weight, x, s3);
  };
  const auto finish = [&](T* HWY_RESTRICT row, auto s0, [[maybe_unused]] auto s1, [[maybe_unused]] auto s2,
                          [[maybe_unused]] auto s3) ONCHIP_INLINE_LAMBDA {
    hn::Store(hn::Add(hn::Load(d, row), s0), d, row);
    if constexpr (kVectors > 1) hn::Store(hn::Add(hn::Load(d, row + lanes), s1), d, row + lanes);
    if constexpr (kVectors > 2) hn::Store(hn::Add(hn::Load(d, row + 2 * lanes), s2), d, row + 2 * lanes);
    if constexpr (kVectors > 3) hn::Store(hn::Add(hn::Load(d, row + 3 * lanes), s3), d, row + 3 * lanes);
  };
  o += lane;
  const int64_t v_stride = values.stride;
  const Element* HWY_RESTRICT v = values.first + lane;
  if constexpr (kRows > 1) {
    for (int64_t j = 0; j < keys; ++j, ++p, v += v_stride) {
      values.prefetch(j, lane, kVectors * lanes);
      read_vectors<kVectors>(d, v, [&](auto index, auto x) ONCHIP_INLINE_LAMBDA {
        add(index, hn::Set(d, p[0]), x, a0, a1, a2, a3);
        add(index, hn::Set(d, p[p_stride]), x, b0, b1, b2, b3);
        if constexpr (kRows > 2) add(index, hn::Set(d, p[2 * p_stride]), x, c0, c1, c2, c3);
        if constexpr (kRows > 2) add(index, hn::Set(d, p[3 * p_stride]), x, e0, e1, e2, e3);
      });
    }
    finish(o, a0, a1, a2, a3);
    finish(o + o_stride, b0, b1, b2, b3);
    if constexpr (kRows > 2) finish(o + 2 * o_stride, c0, c1, c2, c3);
    if constexpr (kRows > 2) finish(o + 3 * o_stride, e0, e1, e2, e3);
  } else {
    int64_t j = 0;
    const auto add_even = [&](auto index, auto x)
                              ONCHIP_INLINE_LAMBDA { add(index, hn::Set(d, p[j]), x, a0, a1, a2, a3); };
    const auto add_odd = [&](auto index, auto x)
                             ONCHIP_INLINE_LAMBDA { add(index, hn::Set(d, p[j + 1]), x, b0, b1, b2, b3); };
    for (; j + 2 <= keys; j += 2, v += 2 * v_stride) {
      values.prefetch(j, lane, kVectors * lanes);
      values.prefetch(j + 1, lane, kVectors * lanes);
      read_vectors<kVectors>(d, v, add_even);
      read_vectors<kVectors>(d, v + v_stride, add_odd);
    }
    if (j < keys) read_vectors<kVectors>(d, v, add_even);
    finish(o, hn::Add(a0, b0), hn::Add(a1, b1), hn::Add(a2, b2), hn::Add(a3, b3));
  }
}

template <int kRows, typename T, typename Element>
HWY_NOINLINE void add_weighted_rows(int64_t keys, int64_t lanes, const T* HWY_RESTRICT p, int64_t p_stride,
                                    const RowRun<Element>& v, T* HWY_RESTRICT o, int64_t o_stride) {
  const int64_t vector = vector_lanes<T>();
  int64_t lane = 0;
  for (; lane + 4 * vector <= lanes; lane += 4 * vector)
    add_weighted_block<kRows, 4>(keys, lane, p, p_stride, v, o, o_stride);
  for (; lane < lanes; lane += vector) add_weighted_block<kRows, 1>(keys, lane, p, p_stride, v, o, o_stride);
}

/// o[r][0, lanes) += Σ_j p[r][j] · v[j][0, lanes), `lanes` in whole vectors, where is_few_rows(rows). Values are of any
/// type and alignment, o is aligned scratch.
template <typename T, typename Element>
HWY_INLINE void add_weighted(int64_t rows, int64_t keys, int64_t lanes, const T* HWY_RESTRICT p, int64_t p_stride,
                             const RowRun<Element>& v, T* HWY_RESTRICT o, int64_t o_stride) {
  if constexpr (kManyRegisters) {
    if (rows == 4) return add_weighted_rows<4>(keys, lanes, p, p_stride, v, o, o_stride);
  }
  rows == 2 ? add_weighted_rows<2>(keys, lanes, p, p_stride, v, o, o_stride)
            : add_weighted_rows<1>(keys, lanes, p, p_stride, v, o, o_stride);
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_WEIGHTED_SUM_INL_H_
