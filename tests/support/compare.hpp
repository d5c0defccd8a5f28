// Holds results to the error bound of docs/semantics.md.
#pragma once

#include <string>
#include <vector>

#include "onchip/onchip.hpp"
#include "support/case.hpp"

namespace onchip::test {

/// What a result is held against; row-major values.
struct Expectation {
  DType inputs;         // type of q
  bool float_products;  // scores come from f32 sums and weights are rounded as standard attention's are: on a GPU
  const std::vector<double>&exact, &standard, &unrounded, &magnitude;
};

/// The positions of infinities and NaN are compared first. Then, for each element,
///   f32 from f32: |error| ≤ 2e-5·(1 + |value|), with float_products as the others;
///   the others: |error| ≤ 2·e_std + 1 ulp of the result's type, where a result of f32 or f64 need not be better than
///   2e-5·(1 + |value|) or 1e-10·(1 + |value|);
/// where e_std is the largest error of `standard` or `unrounded`, standard attention in the same type, but in gradients
/// no less than what four roundings of the accumulators leave at the element's `magnitude`: see docs/semantics.md.
/// Returns what is wrong, or "".
std::string compare(const char* name, const TensorBuffer& got, const Expectation& expected);

/// For quantised inputs and 16-bit results: the RMSE is no worse than that of standard attention on the same values, up
/// to 2 %: both results are rounded, and which of two neighbours an element takes is luck; up to 5 % where weights are
/// rounded too.
std::string compare_rmse(const char* name, const TensorBuffer& got, const Expectation& expected);

}  // namespace onchip::test
