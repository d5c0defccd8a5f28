// One pass of a problem, ready to be run again and again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "onchip/device_problem.hpp"
#include "onchip/io/bytes.hpp"
#include "onchip/measure.hpp"
#include "onchip/onchip.hpp"

namespace onchip::cli {

class TimedPass {
 public:
  /// `args` has data and results; they outlive this. With the cuda backend copies on the GPU are worked on.
  TimedPass(const Attention& args, Pass pass);

  /// Not timed, with a workspace of the library's own; results are where args have them.
  void run_allocating();
  void run_timed();
  /// What was timed so far was for warming up.
  void forget_times() { seconds_.clear(); }

  Pass pass() const { return pass_; }
  const Plan& plan() const { return plan_; }
  Timing timing() const { return summarise(seconds_); }

 private:
  std::unique_ptr<DeviceProblem> device_;  // backend cuda
  Attention args_;
  Pass pass_;
  Plan plan_;
  Bytes workspace_;
  std::vector<double> seconds_;
};

/// How often to repeat.
struct Repetition {
  std::size_t fewest = 3;
  std::size_t most = 25;
  double enough_seconds = 1.0;  // after the fewest runs
  double limit_seconds = 30.0;  // even before them, but never fewer than one
};

/// Each once, then each once more: whatever slows the machine down meanwhile falls on all of them.
void time_in_turns(std::span<TimedPass* const> passes, const Repetition& repetition);

}  // namespace onchip::cli
