// Extra memory grows with N: at Sq = Sk = 65,536, H = 1, D = 64 in f32 (the scores alone would be 16 GiB) each pass
// stays below 100 MB over the tensors, measured as the process's peak.
//   peak_memory forward|backward [seqlen]
// Exit status 0 when it holds, 1 when not, 77 when the backend has no such pass or the system does not report peaks.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/implementation.hpp"
#include "onchip/onchip.hpp"
#include "support/rng.hpp"
#include "support/run.hpp"

namespace {

constexpr int kSkipped = 77;
constexpr long kLimitKilobytes = 100'000'000 / 1024;
constexpr std::int64_t kHeadDim = 64;

/// A line of /proc/self/status in kB, or −1.
long status_kilobytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line))
    if (line.compare(0, field.size(), field) == 0) return std::strtol(line.c_str() + field.size(), nullptr, 10);
  return -1;
}

/// From here on the peak counts from the present size.
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << "5" << std::flush);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace onchip;
  const bool is_forward = argc > 1 && std::strcmp(argv[1], "forward") == 0;
  const Pass pass = is_forward ? Pass::forward : Pass::backward;
  const std::int64_t seqlen = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 65536;
  if (!test::has_backend(Backend::cpu, pass)) {
    std::puts("skipped: backend cpu has no implementation of this pass");
    return kSkipped;
  }
  test::Rng rng(1);
  std::vector<std::vector<float>> memory;
  const auto tensor = [&](std::initializer_list<std::int64_t> shape, double amplitude) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    memory.emplace_back(count);
    for (float& value : memory.back()) value = static_cast<float>(amplitude * (rng.uniform() - 0.5));
    return contiguous(memory.back().data(), DType::f32, shape);
  };
  Attention a;
  a.backend = Backend::cpu;
  for (Tensor* t : {&a.q, &a.k, &a.v, &a.o}) *t = tensor({1, seqlen, 1, kHeadDim}, 2.0);
  a.lse = tensor({1, 1, seqlen}, 0.0);
  if (!is_forward) {
    for (float& value : memory.back()) value = 12.0f;  // a plausible statistic: ln(65536) and some
    for (Tensor* t : {&a.dout, &a.dq, &a.dk, &a.dv}) *t = tensor({1, seqlen, 1, kHeadDim}, 2.0);
  }
  const long before = status_kilobytes("VmRSS:");
  if (before < 0 || !reset_peak()) {
    std::puts("skipped: this system does not report peak memory");
    return kSkipped;
  }
  const Plan plan = is_forward ? forward(a) : backward(a);
  const long extra = status_kilobytes("VmHWM:") - before;
  std::printf("%s: %ld kB over the tensors (workspace %zu bytes), allowed %ld kB\n", plan.implementation.c_str(), extra,
              plan.workspace_bytes, kLimitKilobytes);
  return extra < kLimitKilobytes ? 0 : 1;
}
