#include "onchip/compare.hpp"

#include <fmt/format.h>

#include "onchip/device_problem.hpp"
#include "onchip/timed_pass.hpp"

namespace onchip::cli {
namespace {

/// One backend at work, with results of its own.
class Column {
 public:
  Column(const Attention& problem, const AttentionOptions& options, std::span<const Pass> passes)
      : problem_(problem), results_(std::make_unique<Results>(problem_, passes.size() > 1)) {
    for (const Pass pass : passes) passes_.emplace_back(options.for_pass(problem_, pass), pass);
  }

  /// Warms up. The workspaces for the timed runs are not resident yet, so that the peak is the library's own.
  void measure_memory() {
    for (TimedPass& pass : passes_) {
      const MemoryMeter meter;
      pass.run_allocating();
      peaks_.push_back(meter.peak());
    }
  }

  void add_passes(std::vector<TimedPass*>& all) {
    for (TimedPass& pass : passes_) all.push_back(&pass);
  }

  ColumnReport report(std::span<const NamedTensor> exact) const {
    ColumnReport report{problem_.backend, "", {}, {}};
    for (std::size_t i = 0; i < passes_.size(); ++i)
      report.passes.push_back({passes_[i].plan(), passes_[i].timing(), peaks_[i]});
    for (std::size_t i = 0; i < exact.size(); ++i)
      report.errors.push_back(difference(results_->tensors()[i], exact[i]));
    return report;
  }

  std::unique_ptr<Results> take_results() { return std::move(results_); }

 private:
  Attention problem_;
  std::unique_ptr<Results> results_;
  std::vector<TimedPass> passes_;
  std::vector<std::optional<std::size_t>> peaks_;
};

/// Why `problem` cannot run beside the chosen one; empty when it can.
std::string refusal(Attention problem, std::span<const Pass> passes) {
  if (problem.backend == Backend::cuda) problem = planned_on_gpu(problem);
  try {
    for (const Pass pass : passes) {
      const std::size_t needed = plan(problem, pass).workspace_bytes;
      const std::optional<std::size_t> available = available_memory();
      if (available && needed > *available)
        return fmt::format("{} needs {} of workspace, {} are available", name(pass),
                           bytes_text(static_cast<double>(needed)), bytes_text(static_cast<double>(*available)));
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

Comparison compare(const Attention& problem, const AttentionOptions& options, Backend other) {
  std::vector<Pass> passes = {Pass::forward};
  if (problem.dout.present()) passes.push_back(Pass::backward);
  Comparison comparison;

  Attention other_problem = problem;
  other_problem.backend = other;
  comparison.other.backend = other;
  comparison.other.refusal = refusal(other_problem, passes);

  Column chosen(problem, options, passes);
  std::optional<Column> rival;
  if (comparison.other.refusal.empty()) rival.emplace(other_problem, AttentionOptions{}, passes);
  chosen.measure_memory();
  if (rival) rival->measure_memory();
  std::vector<TimedPass*> all;
  chosen.add_passes(all);
  if (rival) rival->add_passes(all);
  time_in_turns(all, {});

  const Float64Results exact(problem, passes.size() > 1);
  comparison.reference = exact.implementation();
  comparison.chosen = chosen.report(exact.tensors());
  if (rival) comparison.other = rival->report(exact.tensors());
  comparison.results = chosen.take_results();
  return comparison;
}

}  // namespace onchip::cli
