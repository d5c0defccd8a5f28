#include "support/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace onchip::test {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kGuardBytes = 256;

class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(std::size_t size) : size_(size), memory_(size + kAlignment + 2 * kGuardBytes, kPoison) {
    void* start = memory_.data() + kGuardBytes;
    std::size_t space = size + kAlignment;
    start_ = static_cast<std::byte*>(std::align(kAlignment, size, start, space));
  }
  std::span<std::byte> bytes() { return {start_, size_}; }
  bool guard_broken() const {
    const auto written = [](std::byte byte) { return byte != kPoison; };
    const std::byte* first = memory_.data();
    return std::any_of(first, static_cast<const std::byte*>(start_), written) ||
           std::any_of(static_cast<const std::byte*>(start_) + size_, first + memory_.size(), written);
  }

 private:
  std::size_t size_;
  std::vector<std::byte> memory_;
  std::byte* start_;
};

}  // namespace

Outcome run_public(const Attention& args, Pass pass) {
  Outcome outcome;
  try {
    const Plan planned = plan(args, pass);
    GuardedWorkspace workspace(planned.workspace_bytes);
    outcome.plan = pass == Pass::forward ? forward(args, workspace.bytes()) : backward(args, workspace.bytes());
    if (workspace.guard_broken()) outcome.error = "wrote outside the workspace";
    if (outcome.plan.implementation != planned.implementation)
      outcome.error = "ran " + outcome.plan.implementation + ", planned " + planned.implementation;
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

Outcome run_implementation(const Implementation& implementation, const Attention& args, Pass pass) {
  Outcome outcome;
  Problem problem;
  if (const Status status = make_problem(args, pass, Use::run, problem); !status.ok()) {
    outcome.error = status.message();
    return outcome;
  }
  outcome.plan.pass = pass;
  outcome.plan.implementation = implementation.name;
  outcome.plan.backend = implementation.backend;
  outcome.plan.num_threads = problem.num_threads;
  implementation.configure(problem, outcome.plan);
  GuardedWorkspace workspace(outcome.plan.workspace_bytes);
  const Status status = implementation.run(problem, outcome.plan, workspace.bytes());
  if (!status.ok()) outcome.error = status.message();
  if (workspace.guard_broken()) outcome.error = "wrote outside the workspace";
  return outcome;
}

Outcome run_guarded(Case& c, Pass pass, const std::function<Outcome(const Attention&, Pass)>& call) {
  std::vector<std::vector<std::byte>> before;
  for (const TensorBuffer* input : c.inputs_of(pass)) before.push_back(input->bytes());
  for (TensorBuffer* result : c.results_of(pass)) result->poison();
  Outcome outcome = call(pass == Pass::forward ? c.forward_args() : c.backward_args(), pass);
  if (!outcome.error.empty()) return outcome;
  for (const TensorBuffer* result : c.results_of(pass))
    if (result->guard_broken()) outcome.error = "wrote outside a result of shape " + describe(result->view());
  std::size_t at = 0;
  for (const TensorBuffer* input : c.inputs_of(pass))
    if (input->bytes() != before[at++]) outcome.error = "wrote to an input of shape " + describe(input->view());
  return outcome;
}

bool has_backend(Backend backend, Pass pass) {
  const auto list = implementations();
  return std::any_of(list.begin(), list.end(), [&](const Implementation* implementation) {
    return implementation->backend == backend && implementation->pass == pass;
  });
}

const char* backend_name(Backend backend) {
  return backend == Backend::cpu        ? "cpu"
         : backend == Backend::standard ? "standard"
         : backend == Backend::cuda     ? "cuda"
                                        : "other";
}

}  // namespace onchip::test
