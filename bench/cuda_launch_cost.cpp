// What a call costs on the host above a bare launch of the same kernel through the driver.
//
// Both are queued in batches on one stream of an otherwise idle GPU, alternating; the medians are printed.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "core/problem.hpp"
#include "cuda/host/gpu.hpp"
#include "cuda/host/kernel_loader.hpp"
#include "cuda/host/portable_plan.hpp"

namespace {

using onchip::Attention;
using onchip::DType;

constexpr int kBatch = 50;
constexpr int kRounds = 200;

template <typename Call>
double microseconds(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int n = 0; n < kBatch; ++n) call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / kBatch;
}

double median(std::vector<double> samples) {
  std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
  return samples[samples.size() / 2];
}

/// Throws where a status is an error.
void require(const onchip::Status& status) {
  if (!status.ok()) throw onchip::Error(status.code(), status.message());
}

void run() {
  const auto& opened = onchip::cuda::driver_in_use();
  require(opened.status);
  const onchip::cuda::Driver& driver = opened.driver;
  const onchip::cuda::Gpu* gpu = nullptr;
  require(onchip::cuda::find_gpu(driver, 0, gpu));
  onchip::cuda::CurrentGpu current(driver);
  require(current.enter(*gpu));
  void* library = dlopen(driver.path.c_str(), RTLD_NOW);
  const auto allocate = reinterpret_cast<int (*)(unsigned long long*, std::size_t)>(dlsym(library, "cuMemAlloc_v2"));
  const auto synchronize = reinterpret_cast<int (*)()>(dlsym(library, "cuCtxSynchronize"));
  unsigned long long memory = 0;
  require(driver.check(allocate(&memory, std::size_t{1} << 20), "cuMemAlloc"));

  Attention a;
  const auto tensor = [&](int n) {
    return onchip::contiguous(reinterpret_cast<void*>(memory + static_cast<unsigned long long>(n) * (128 * 64 * 2)),
                              DType::bf16, {1, 128, 1, 64});
  };
  a.q = tensor(0), a.k = tensor(1), a.v = tensor(2), a.o = tensor(3);
  a.device = 0;
  onchip::Problem problem;
  require(onchip::make_problem(a, onchip::Pass::forward, onchip::Use::run, problem));
  const auto plan = onchip::cuda::portable_plan(problem, {gpu->shared_bytes_per_block, gpu->multiprocessors});
  const auto& config = plan.config;
  auto launch = onchip::cuda::portable_launch(problem, plan, gpu->l2_bytes, nullptr);
  onchip::cuda::Function function = nullptr;
  require(onchip::cuda::find_kernel(
      driver, *gpu, "launch cost", config.shared_bytes(),
      [&] { return onchip::cuda::portable_request(config, gpu->arch()); }, function));
  void* parameters[] = {&launch.params};
  const auto bare = [&] {
    driver.cuLaunchKernel(function, static_cast<unsigned>(launch.grid_x), static_cast<unsigned>(launch.grid_y), 1,
                          static_cast<unsigned>(config.threads()), 1, 1, static_cast<unsigned>(config.shared_bytes()),
                          nullptr, parameters, nullptr);
  };
  const auto whole = [&] { onchip::forward(a); };

  std::vector<double> bare_us, whole_us;
  for (int n = -10; n < kRounds; ++n) {
    const double bare_time = microseconds(bare);
    synchronize();
    const double whole_time = microseconds(whole);
    synchronize();
    if (n < 0) continue;  // warm-up
    bare_us.push_back(bare_time);
    whole_us.push_back(whole_time);
  }
  std::printf("%s: bare launch %.2f us, onchip::forward %.2f us, above it %.2f us\n", gpu->name.c_str(),
              median(bare_us), median(whole_us), median(whole_us) - median(bare_us));
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_launch_cost: %s\n", error.what());
    return 1;
  }
  return 0;
}
