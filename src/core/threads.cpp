#include "core/threads.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>

// ThreadSanitizer does not see OpenMP's own synchronization: it is told that a team starts after its caller and ends
// before it, and does not look at run_tasks itself, whose variables the compiler hands to the team.
#if defined(__SANITIZE_THREAD__)
#define ONCHIP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ONCHIP_TSAN 1
#endif
#endif
#if defined(ONCHIP_TSAN)
#include <sanitizer/tsan_interface.h>
#define ONCHIP_NOT_SANITIZED __attribute__((no_sanitize("thread")))
#define ONCHIP_HAPPENED_BEFORE(address) __tsan_acquire(address)
#define ONCHIP_HAPPENS_BEFORE(address) __tsan_release(address)
#else
#define ONCHIP_NOT_SANITIZED
#define ONCHIP_HAPPENED_BEFORE(address)
#define ONCHIP_HAPPENS_BEFORE(address)
#endif

namespace onchip {

int available_threads() { return std::max(1, std::min(omp_get_max_threads(), omp_get_num_procs())); }

ONCHIP_NOT_SANITIZED void run_tasks(std::int64_t num_tasks, int num_threads, TaskFunction function, void* context) {
  const auto team = static_cast<int>(std::min<std::int64_t>(num_threads, num_tasks));
  if (team <= 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task) function(context, task, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  ONCHIP_HAPPENS_BEFORE(&next);
#pragma omp parallel num_threads(team)
  {
    ONCHIP_HAPPENED_BEFORE(&next);
    const int thread = omp_get_thread_num();
    for (std::int64_t task = next++; task < num_tasks; task = next++) function(context, task, thread);
    ONCHIP_HAPPENS_BEFORE(&next);
  }
  ONCHIP_HAPPENED_BEFORE(&next);
}

}  // namespace onchip
