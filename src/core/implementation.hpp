// One way to compute attention: it accepts a Problem or says why not, fills in a Plan, and runs.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "core/problem.hpp"

namespace onchip {

struct Implementation {
  const char* name;
  Backend backend;
  Pass pass;

  /// Nothing when the problem is accepted, else the reason, a phrase that completes "rejected: …".
  std::optional<std::string> (*reject)(const Problem& problem);

  /// Sets tile, num_threads and workspace_bytes from shapes, options and sequence lengths.
  void (*configure)(const Problem& problem, Plan& plan);

  /// `workspace` has plan.workspace_bytes bytes, aligned to 64, of any content.
  Status (*run)(const Problem& problem, const Plan& plan, std::span<std::byte> workspace);
};

/// Every implementation, fastest first. (core/implementations.cpp)
std::span<const Implementation* const> implementations();

}  // namespace onchip
