// The SIMD building blocks of one target behind plain function pointers, so that tests stay out of target-specific
// code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/query_block.hpp"
#include "onchip/onchip.hpp"

namespace onchip::cpu {

/// A row-major tile or strided matrix: see gemm-inl.h.
template <typename T>
struct GemmCase {
  int start;  // GemmStart
  std::int64_t rows, lanes, depth;
  const T* a;
  std::int64_t a_row_stride, a_col_stride;
  const T* b;
  std::int64_t b_stride;
  T* c;
  std::int64_t c_stride;
  const T* factor;
};

template <typename T>
struct SimdFunctions {
  std::int64_t (*vector_lanes)();
  void (*exp2)(std::int64_t n, const T* x, T* y);  // n: a multiple of vector_lanes
  void (*tanh)(std::int64_t n, const T* x, T* y);
  void (*gemm)(const GemmCase<T>& gemm_case);
  void (*dot_keys)(std::int64_t rows, std::int64_t keys, std::int64_t depth, const T* q, std::int64_t q_stride,
                   const T* k, std::int64_t k_stride, T* scores, std::int64_t score_stride);
  void (*load_row)(DType dtype, const void* row, std::int64_t n, T factor, T* dst);
  void (*load_rows)(DType dtype, const std::byte* src, std::int64_t src_bytes, std::int64_t rows, std::int64_t n,
                    T* dst, std::int64_t dst_stride);
  void (*store_row)(DType dtype, const T* src, std::int64_t n, T factor, void* row);
  void (*transpose)(std::int64_t rows, std::int64_t cols, const T* src, std::int64_t src_stride, T* dst,
                    std::int64_t dst_stride);
  bool (*softmax_tile)(std::int64_t keys, std::int64_t lanes, T* scores, std::int64_t stride, T unit, T* row_max,
                       T* row_sum, T* factor);
  void (*score_tile)(const Problem& problem, const LaneTable<T>& table, T* scores, std::int64_t stride,
                     std::int64_t key_begin, std::int64_t keys, std::int64_t lane_begin, std::int64_t lanes,
                     bool window_edge, bool mask_edge, T* derivative);
  int (*mask_cover)(const std::byte* const* rows, std::int64_t lanes, std::int64_t key_begin, std::int64_t keys);
};

/// The table of the target that is active: see for_each_target.
template <typename T>
const SimdFunctions<T>& simd_functions();

/// Runs body(target name) with each target that this machine supports and this program holds.
void for_each_target(void (*body)(const std::string& target));

/// n elements aligned for scratch.
template <typename T>
class Scratch {
 public:
  explicit Scratch(std::size_t n, T fill = T()) : storage_(n + 64 / sizeof(T), fill) {}
  T* data() {
    auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    return reinterpret_cast<T*>((address + 63) / 64 * 64);
  }
  T& operator[](std::size_t i) { return data()[i]; }

 private:
  std::vector<T> storage_;
};

}  // namespace onchip::cpu
