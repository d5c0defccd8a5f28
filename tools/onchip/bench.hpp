// onchip bench: the cases, what came of them, and how that is shown.
#pragma once

#include <string>
#include <vector>

#include "onchip/measure.hpp"
#include "onchip/onchip.hpp"
#include "onchip/shape_options.hpp"

namespace onchip::cli {

/// One pass of one backend on one shape.
struct BenchRow {
  Shape shape;
  bool causal = false;
  Pass pass = Pass::forward;
  Backend backend = Backend::automatic;
  std::string refusal;  // why there is no time
  Plan plan;
  Timing timing;
};

std::string bench_table_header();
std::string bench_table_row(const BenchRow& row);
std::string bench_json(const std::vector<BenchRow>& rows);

}  // namespace onchip::cli
