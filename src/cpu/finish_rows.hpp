// From the sums of online softmax to what a row's output is multiplied by, and its lse.
#pragma once

#include <cstdint>

namespace onchip::cpu {

struct FinishedRow {
  double output_factor;  ///< o = output_factor · accumulated; 0 for a row without keys
  double lse;            ///< natural logarithm, the sink included
};

/// A row after all of its keys: maximum and sum as softmax-inl.h keeps them, the maximum times log2_unit.
/// `sink` points to the row's sink logit, or is null.
FinishedRow finish_row(double row_max_log2, double row_sum, const float* sink);

}  // namespace onchip::cpu
