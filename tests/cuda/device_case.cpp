#include "cuda/device_case.hpp"

#include <algorithm>
#include <stdexcept>

#include "support/check_case.hpp"

namespace onchip::test {

DeviceCase::DeviceCase(Case& c) : case_(c) {
  for (const TensorBuffer* buffer : c.inputs_of(Pass::forward))
    image_.add(buffer->bytes().data(), buffer->bytes().size());
  for (const TensorBuffer* buffer : c.results_of(Pass::forward))
    image_.add(buffer->bytes().data(), buffer->bytes().size());
}

Attention DeviceCase::args(const TestStream& stream) const {
  Attention a = case_.forward_args();
  image_.move(a);
  a.device = 0;
  a.stream = stream.get();
  a.backend = Backend::automatic;
  return a;
}

void DeviceCase::read_results() {
  for (const TensorBuffer* result : case_.results_of(Pass::forward))
    image_.read(const_cast<std::byte*>(result->bytes().data()));
}

namespace {

/// Lengths in device memory are not looked at; score tensors may be only as long as the longest sequence.
void set_longest(const Case& c, Attention& a) {
  Problem problem;
  if (!make_problem(c.forward_args(), Pass::forward, Use::run, problem).ok()) throw std::runtime_error("illegal case");
  a.max_seqlen_q = std::max<std::int64_t>(problem.max_seqlen_q, 1);  // 0 would be: unknown
  a.max_seqlen_k = std::max<std::int64_t>(problem.max_seqlen_k, 1);
}

}  // namespace

Outcome run_on_gpu(Case& c, const TestStream& stream) {
  Outcome outcome;
  try {
    DeviceCase device(c);
    Attention args = device.args(stream);
    set_longest(c, args);
    outcome.plan = forward(args);
    stream.wait();
    device.read_results();
    if (outcome.plan.backend != Backend::cuda) outcome.error = "ran on another backend";
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

Outcome run_on_gpu(Case& c) {
  use_gpu();
  return run_on_gpu(c, TestStream());
}

std::vector<std::string> check_on_gpu(Case& c, const TestStream& stream) {
  const Outcome outcome = run_guarded(c, Pass::forward, [&](const Attention&, Pass) { return run_on_gpu(c, stream); });
  if (!outcome.error.empty()) return {outcome.error};
  c.options.backend = Backend::cuda;
  return compare_results(c, Pass::forward);
}

}  // namespace onchip::test
