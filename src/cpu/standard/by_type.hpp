// configure() and run() of an implementation that is a class template over the compute type: double for f64, else
// float. The class takes (problem, num_threads, cursor), claims its workspace from the cursor, and has run().
#pragma once

#include <cstddef>
#include <span>

#include "core/implementation.hpp"
#include "core/workspace.hpp"

namespace onchip::cpu {

template <template <typename> class Standard>
struct ByType {
  static void configure(const Problem& problem, Plan& plan) {
    plan.workspace_bytes =
        problem.dtype() == DType::f64 ? workspace_bytes<double>(problem, plan) : workspace_bytes<float>(problem, plan);
  }

  static Status run(const Problem& problem, const Plan& plan, std::span<std::byte> workspace) {
    WorkspaceCursor cursor(workspace);
    if (problem.dtype() == DType::f64)
      Standard<double>(problem, plan.num_threads, cursor).run();
    else
      Standard<float>(problem, plan.num_threads, cursor).run();
    return {};
  }

 private:
  template <typename T>
  static std::size_t workspace_bytes(const Problem& problem, const Plan& plan) {
    WorkspaceCursor cursor;
    Standard<T>(problem, plan.num_threads, cursor);
    return cursor.used_bytes();
  }
};

}  // namespace onchip::cpu
