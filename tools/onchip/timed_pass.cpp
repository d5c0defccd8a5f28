#include "onchip/timed_pass.hpp"

namespace onchip::cli {

TimedPass::TimedPass(const Attention& args, Pass pass)
    : device_(args.backend == Backend::cuda ? std::make_unique<DeviceProblem>(args) : nullptr),
      args_(device_ ? device_->args() : args),
      pass_(pass),
      plan_(onchip::plan(args_, pass)),
      workspace_(plan_.workspace_bytes) {}

void TimedPass::run_allocating() {
  plan_ = pass_ == Pass::forward ? forward(args_) : backward(args_);
  if (device_) device_->read_results();
}

void TimedPass::run_timed() {
  seconds_.push_back(seconds_of([&] {
    if (pass_ == Pass::forward)
      static_cast<void>(forward(args_, workspace_.span()));
    else
      static_cast<void>(backward(args_, workspace_.span()));
    if (device_) synchronize(kFirstGpu);
  }));
}

void time_in_turns(std::span<TimedPass* const> passes, const Repetition& repetition) {
  double total = 0;
  for (std::size_t round = 0; round < repetition.most; ++round) {
    if (round > 0 && total > repetition.limit_seconds) return;
    if (round >= repetition.fewest && total > repetition.enough_seconds) return;
    total += seconds_of([&] {
      for (TimedPass* pass : passes) pass->run_timed();
    });
  }
}

}  // namespace onchip::cli
