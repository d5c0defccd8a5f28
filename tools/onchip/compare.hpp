// attend --compare: two backends on the same problem, side by side.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onchip/attention_options.hpp"
#include "onchip/float64_problem.hpp"
#include "onchip/measure.hpp"
#include "onchip/onchip.hpp"
#include "onchip/results.hpp"

namespace onchip::cli {

/// What one pass of one backend took.
struct PassReport {
  Plan plan;
  Timing timing;
  std::optional<std::size_t> peak_bytes;  // over inputs and results; nothing where the kernel does not tell
};

struct ColumnReport {
  Backend backend;
  std::string refusal;  // why it did not run; empty when it did
  std::vector<PassReport> passes;
  std::vector<Difference> errors;
};

struct Comparison {
  std::string reference;  // the implementation that computed in float64
  ColumnReport chosen, other;
  std::unique_ptr<Results> results;  // of the chosen
};

/// Runs `problem` with its own backend and with `other`, in turns, and measures both against float64.
Comparison compare(const Attention& problem, const AttentionOptions& options, Backend other);

std::string to_text(const Comparison& comparison);
std::string to_json(const Comparison& comparison);

}  // namespace onchip::cli
