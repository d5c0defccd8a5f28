// Rounding of computed rows to a 16-bit input type, as standard attention stores them.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "core/workspace.hpp"
#include "cpu/row_kernels.hpp"

namespace onchip::cpu {

template <typename T>
class RowRounder {
 public:
  RowRounder(const Problem& problem, WorkspaceCursor& cursor, int threads)
      : dtype_(problem.dtype()),
        stride_(padded<std::uint16_t>(problem.max_seqlen_k)),
        narrow_(is_narrow() ? cursor.take<std::uint16_t>(static_cast<std::size_t>(threads * stride_)) : nullptr) {}

  void operator()(T* row, std::int64_t n, int thread) const {
    if (!is_narrow()) return;
    std::uint16_t* stored = narrow_ + thread * stride_;
    row_kernels<T>().store(dtype_, row, n, T{1}, stored);
    row_kernels<T>().load(dtype_, stored, n, T{1}, row);
  }

 private:
  bool is_narrow() const { return dtype_ == DType::bf16 || dtype_ == DType::f16; }

  DType dtype_;
  std::int64_t stride_;
  std::uint16_t* narrow_;
};

}  // namespace onchip::cpu
