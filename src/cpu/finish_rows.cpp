#include "cpu/finish_rows.hpp"

#include <cmath>
#include <limits>

#include "cpu/query_block.hpp"

namespace onchip::cpu {
namespace {

/// What exp2 was shifted by: see softmax-inl.h.
double shift_of(double max_log2) { return std::isfinite(max_log2) ? max_log2 : 0.0; }

}  // namespace

FinishedRow finish_row(double row_max_log2, double row_sum, const float* sink) {
  const double shift = shift_of(row_max_log2);
  double new_shift = shift, accumulated_factor = 1.0, sum = row_sum;
  if (sink != nullptr) {
    const double sink_log2 = static_cast<double>(*sink) * kLog2E;
    new_shift = shift_of(row_max_log2 > sink_log2 ? row_max_log2 : sink_log2);
    accumulated_factor = row_sum == 0.0 ? 0.0 : std::exp2(shift - new_shift);
    sum = row_sum * accumulated_factor + std::exp2(sink_log2 - new_shift);
  }
  if (sum == 0.0) return {0.0, -std::numeric_limits<double>::infinity()};
  return {accumulated_factor / sum, (new_shift + std::log2(sum)) * kLn2};
}

}  // namespace onchip::cpu
