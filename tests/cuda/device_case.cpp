#include "cuda/device_case.hpp"

#include <algorithm>
#include <stdexcept>

#include "support/check_case.hpp"
#include "support/run.hpp"

namespace onchip::test {

DeviceCase::DeviceCase(Case& c) : case_(c) {
  for (const TensorBuffer* buffer : c.inputs_of(Pass::forward)) copy(*buffer);
  for (const TensorBuffer* buffer : c.results_of(Pass::forward)) copy(*buffer);
}

void DeviceCase::copy(const TensorBuffer& buffer) {
  copies_.push_back({&buffer, DeviceMemory(0, buffer.bytes().size())});
  copies_.back().memory.write(buffer.bytes().data(), buffer.bytes().size());
}

Tensor DeviceCase::moved(Tensor view) const {
  if (!view.present()) return view;
  const auto* address = static_cast<const std::byte*>(view.data);
  for (const Copy& copy : copies_) {
    const std::byte* begin = copy.host->bytes().data();
    if (begin > address || address >= begin + copy.host->bytes().size()) continue;
    view.data = static_cast<std::byte*>(copy.memory.data()) + (address - begin);
    return view;
  }
  view.data = nullptr;  // no elements
  return view;
}

Attention DeviceCase::args(const TestStream& stream) const {
  Attention a = case_.forward_args();
  for (Tensor* tensor : {&a.q, &a.k, &a.v, &a.bias, &a.mask, &a.alibi_slopes, &a.sink, &a.cu_seqlens_q, &a.cu_seqlens_k,
                         &a.seqused_k, &a.page_table, &a.k_scale, &a.v_scale, &a.o, &a.lse})
    *tensor = moved(*tensor);
  a.device = 0;
  a.stream = stream.get();
  a.backend = Backend::automatic;
  return a;
}

void DeviceCase::read_results() {
  for (TensorBuffer* result : case_.results_of(Pass::forward))
    for (const Copy& copy : copies_)
      if (copy.host == result) copy.memory.read(const_cast<std::byte*>(result->bytes().data()), result->bytes().size());
}

namespace {

/// Lengths in device memory are not looked at; score tensors may be only as long as the longest sequence.
void set_longest(const Case& c, Attention& a) {
  Problem problem;
  if (!make_problem(c.forward_args(), Pass::forward, Use::run, problem).ok()) throw std::runtime_error("illegal case");
  a.max_seqlen_q = std::max<std::int64_t>(problem.max_seqlen_q, 1);  // 0 would be: unknown
  a.max_seqlen_k = std::max<std::int64_t>(problem.max_seqlen_k, 1);
}

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

}  // namespace

std::vector<std::string> check_on_gpu(Case& c, const TestStream& stream) {
  const Outcome outcome = run_guarded(c, Pass::forward, [&](const Attention&, Pass) { return run_on_gpu(c, stream); });
  if (!outcome.error.empty()) return {outcome.error};
  return compare_results(c, Pass::forward);
}

}  // namespace onchip::test
