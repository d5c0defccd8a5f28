// Rows of numbers of any type as float or double and back, rounded as core/number_format.hpp says.
#pragma once

#include <cstdint>

#include "core/number_format.hpp"

namespace onchip {

/// dst[0, n) = the n elements at `row`.
template <typename Real>
void load_row(DType dtype, const void* row, std::int64_t n, Real* dst) {
  visit_element(dtype, [&](auto tag) {
    const auto* elements = static_cast<const typename decltype(tag)::type*>(row);
    for (std::int64_t i = 0; i < n; ++i) dst[i] = static_cast<Real>(to_double(elements[i]));
  });
}

/// The n elements at `row` = src[0, n).
template <typename Real>
void store_row(DType dtype, const Real* src, std::int64_t n, void* row) {
  visit_element(dtype, [&](auto tag) {
    using Element = typename decltype(tag)::type;
    auto* elements = static_cast<Element*>(row);
    for (std::int64_t i = 0; i < n; ++i) elements[i] = from_double<Element>(static_cast<double>(src[i]));
  });
}

}  // namespace onchip
