// Holds results to the error bound of docs/semantics.md.
#pragma once

#include <string>
#include <vector>

#include "onchip/onchip.hpp"
#include "support/case.hpp"

namespace onchip::test {

/// What a result is held against; row-major values.
struct Expectation {
  const std::vector<double>&exact, &standard, &unrounded, &magnitude;
};

/// The positions of infinities and NaN are compared first. Then, for each element,
///   f64: |error| ≤ 1e-11·(1 + |value|), f32: |error| ≤ 2e-5·(1 + |value|), or, where even standard attention in that
///   type is worse (large logits), as for 16 bits: |error| ≤ 2·e_std + 1 ulp;
/// where e_std is the largest error of `standard` or `unrounded`, standard attention in the same type, but no less than
/// two roundings of the accumulator's type at the element's `magnitude`: where terms cancel (the gradient of a row
/// with one key) or scores are large, standard attention may be exact in one order of summation and is not in another.
/// Returns what is wrong, or "".
std::string compare(const char* name, const TensorBuffer& got, const Expectation& expected);

/// For quantised inputs and results below f64: the RMSE is no worse than that of standard attention on the same values,
/// up to a quarter of the output type's last place (both results are rounded to it, and which of two neighbours they
/// take is luck).
std::string compare_rmse(const char* name, const TensorBuffer& got, const Expectation& expected);

}  // namespace onchip::test
