// Rows of numbers of any type as float or double and back, rounded as core/number_format.hpp says.
#pragma once

#include <cstdint>

#include "core/number_format.hpp"
#include "cpu/row_kernels.hpp"

namespace onchip {

/// dst[0, n) = factor times the n elements at `row`. dst is scratch as cpu/row_kernels.hpp wants it: on a cache line,
/// and whole lines long, of which the rest is overwritten too.
template <typename Real>
void load_row(DType dtype, const void* row, std::int64_t n, Real factor, Real* dst) {
  cpu::row_kernels<Real>().load(dtype, row, n, factor, dst);
}

/// The n elements at `row` = src[0, n). A row of f64 needs a double src.
template <typename Real>
void store_row(DType dtype, const Real* src, std::int64_t n, void* row) {
  if (size_of(dtype) > 1) return cpu::row_kernels<Real>().store(dtype, src, n, Real(1), row);
  visit_element(dtype, [&](auto tag) {
    using Element = typename decltype(tag)::type;
    auto* elements = static_cast<Element*>(row);
    for (std::int64_t i = 0; i < n; ++i) elements[i] = from_double<Element>(static_cast<double>(src[i]));
  });
}

}  // namespace onchip
