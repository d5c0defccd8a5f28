// onchip bench: the cases, what came of them, and how that is shown.
#pragma once

#include <string>
#include <vector>

#include "model/machine.hpp"
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

/// What the machine gave at its best in the same run, with the same number of threads.
struct BenchPeaks {
  int num_threads = 1;
  model::CpuPeaks measured;
};

/// A line about the peaks and the names of the columns.
std::string bench_table_header(const BenchPeaks& peaks);
std::string bench_table_row(const BenchRow& row, const BenchPeaks& peaks);
std::string bench_json(const std::vector<BenchRow>& rows, const BenchPeaks& peaks);

}  // namespace onchip::cli
