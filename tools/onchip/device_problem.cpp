#include "onchip/device_problem.hpp"

#include "onchip/results.hpp"

namespace onchip::cli {
namespace {

std::size_t bytes_of(const Tensor& tensor) { return element_count(tensor) * size_of(tensor.dtype); }

}  // namespace

void check_gpu() { DeviceMemory(kFirstGpu, 1); }

Attention planned_on_gpu(Attention problem) {
  problem.device = kFirstGpu;
  return problem;
}

DeviceProblem::DeviceProblem(const Attention& problem) : args_(planned_on_gpu(problem)) {
  for (Tensor* tensor :
       {&args_.q, &args_.k, &args_.v, &args_.bias, &args_.mask, &args_.alibi_slopes, &args_.sink, &args_.cu_seqlens_q,
        &args_.cu_seqlens_k, &args_.seqused_k, &args_.page_table, &args_.k_scale, &args_.v_scale}) {
    if (!tensor->present()) continue;
    inputs_.emplace_back(kFirstGpu, bytes_of(*tensor));
    inputs_.back().write(tensor->data, bytes_of(*tensor));
    tensor->data = inputs_.back().data();
  }
  for (Tensor* tensor : {&args_.o, &args_.lse}) {
    if (!tensor->present()) continue;
    results_.push_back({*tensor, DeviceMemory(kFirstGpu, bytes_of(*tensor))});
    results_.back().memory.write(tensor->data, bytes_of(*tensor));
    tensor->data = results_.back().memory.data();
  }
}

void DeviceProblem::read_results() const {
  synchronize(kFirstGpu);
  for (const Copy& result : results_) result.memory.read(result.host.data, bytes_of(result.host));
}

}  // namespace onchip::cli
