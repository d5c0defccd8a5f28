// The one interface to threads. OpenMP is underneath.
#pragma once

#include <cstdint>
#include <type_traits>

namespace onchip {

/// Threads this process may use: its CPU affinity, or OMP_NUM_THREADS where that is set.
int available_threads();

using TaskFunction = void (*)(void* context, std::int64_t task, int thread);

/// Calls function(context, task, thread) once for each task 0…num_tasks−1, handed out in that order, from at most
/// num_threads threads numbered from 0. Returns when all are done. `function` must not throw.
void run_tasks(std::int64_t num_tasks, int num_threads, TaskFunction function, void* context);

/// run_tasks for a callable body(task, thread).
template <typename Body>
void parallel_tasks(std::int64_t num_tasks, int num_threads, Body&& body) {
  using Callable = std::remove_reference_t<Body>;
  run_tasks(
      num_tasks, num_threads,
      [](void* context, std::int64_t task, int thread) { (*static_cast<Callable*>(context))(task, thread); }, &body);
}

}  // namespace onchip
