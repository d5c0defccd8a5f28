// Number formats for the tests, written from their definitions and apart from the library's own conversions.
#pragma once

#include <cstdint>

#include "onchip/onchip.hpp"

namespace onchip::test {

/// The value of element `index` of an array of `type`; booleans are 0 or 1.
double decode(DType type, const void* data, std::int64_t index);

/// Stores `value`, rounded to nearest even. The 8-bit types saturate, the others overflow to infinity.
void encode(DType type, void* data, std::int64_t index, double value);

/// `value` as `type` would hold it.
double round_to(DType type, double value);

/// Distance between neighbouring numbers of `type` at the magnitude of `value`.
double ulp(DType type, double value);

/// Largest finite number of `type`.
double largest(DType type);

}  // namespace onchip::test
