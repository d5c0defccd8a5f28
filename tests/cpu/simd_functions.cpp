#include "cpu/simd_functions.hpp"

#define HWY_WANT_AVX3_DL  // for byte_table-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd_functions.cpp"
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// foreach_target first
#include "cpu/simd/convert-inl.h"
#include "cpu/simd/dot-inl.h"
#include "cpu/simd/exp2-inl.h"
#include "cpu/simd/gemm-inl.h"
#include "cpu/simd/score-inl.h"
#include "cpu/simd/softmax-inl.h"
#include "cpu/simd/transpose-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {

template <typename T>
void exp2_array(std::int64_t n, const T* x, T* y) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < n; i += vector_lanes<T>()) hn::StoreU(exp2(d, hn::LoadU(d, x + i)), d, y + i);
}

template <typename T>
void tanh_array(std::int64_t n, const T* x, T* y) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < n; i += vector_lanes<T>()) hn::StoreU(tanh(d, hn::LoadU(d, x + i)), d, y + i);
}

template <typename T>
void gemm_case(const GemmCase<T>& g) {
  gemm<T>(static_cast<GemmStart>(g.start), g.rows, g.lanes, g.depth,
          {g.a, g.a_row_stride, g.a_col_stride, g.b, g.b_stride, g.c, g.c_stride, g.factor});
}

template <typename T>
void dot_case(std::int64_t rows, std::int64_t keys, std::int64_t depth, const T* q, std::int64_t q_stride, const T* k,
              std::int64_t k_stride, T* scores, std::int64_t score_stride) {
  dot_keys(rows, keys, depth, q, q_stride, RowRun<T>{k, k_stride}, scores, score_stride);
}

template <typename T>
bool softmax_case(std::int64_t keys, std::int64_t lanes, T* scores, std::int64_t stride, T unit, T* row_max, T* row_sum,
                  T* factor) {
  return softmax_tile<T>(keys, lanes, scores, stride, unit, {row_max, row_sum, factor});
}

template <typename T>
void score_case(const Problem& problem, const LaneTable<T>& table, T* scores, std::int64_t stride,
                std::int64_t key_begin, std::int64_t keys, std::int64_t lane_begin, std::int64_t lanes,
                bool window_edge, bool mask_edge, T* derivative) {
  score_tile<T>(problem, table, {scores, stride, key_begin, keys, lane_begin, lanes}, window_edge, mask_edge,
                derivative);
}

int mask_cover_case(const std::byte* const* rows, std::int64_t lanes, std::int64_t key_begin, std::int64_t keys) {
  return static_cast<int>(mask_cover(rows, lanes, key_begin, keys));
}

template <typename T>
void transpose_case(std::int64_t rows, std::int64_t cols, const T* src, std::int64_t src_stride, T* dst,
                    std::int64_t dst_stride) {
  transpose<T>(rows, cols, src, src_stride, dst, dst_stride);
}

template <typename T>
const SimdFunctions<T>* table() {
  static constexpr SimdFunctions<T> kTable{vector_lanes<T>,   exp2_array<T>,   tanh_array<T>, gemm_case<T>,
                                           dot_case<T>,       load_row<T>,     load_rows<T>,  store_row<T>,
                                           transpose_case<T>, softmax_case<T>, score_case<T>, mask_cover_case};
  return &kTable;
}

const SimdFunctions<float>* table_f32() { return table<float>(); }
const SimdFunctions<double>* table_f64() { return table<double>(); }

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onchip::cpu {

HWY_EXPORT(table_f32);
HWY_EXPORT(table_f64);

template <>
const SimdFunctions<float>& simd_functions<float>() {
  return *HWY_DYNAMIC_DISPATCH(table_f32)();
}
template <>
const SimdFunctions<double>& simd_functions<double>() {
  return *HWY_DYNAMIC_DISPATCH(table_f64)();
}

void for_each_target(void (*body)(const std::string& target)) {
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace onchip::cpu
#endif  // HWY_ONCE
