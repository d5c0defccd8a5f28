#include "core/threads.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>

namespace onchip {

int available_threads() { return std::max(1, std::min(omp_get_max_threads(), omp_get_num_procs())); }

void run_tasks(std::int64_t num_tasks, int num_threads, TaskFunction function, void* context) {
  const auto team = static_cast<int>(std::min<std::int64_t>(num_threads, num_tasks));
  if (team <= 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task) function(context, task, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
#pragma omp parallel num_threads(team)
  {
    const int thread = omp_get_thread_num();
    for (std::int64_t task = next++; task < num_tasks; task = next++) function(context, task, thread);
  }
}

}  // namespace onchip
