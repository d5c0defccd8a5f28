// Walks the list of implementations and makes the Plan.
#pragma once

#include <string>

#include "core/implementation.hpp"

namespace onchip {

Status make_plan(const Problem& problem, Plan& plan);

/// Enough bytes, aligned.
Status check_workspace(std::span<std::byte> workspace, const Plan& plan);

/// Makes the plan, checks the workspace and runs. `workspace` may hold more than is needed.
Status run(const Problem& problem, std::span<std::byte> workspace, Plan& plan);

}  // namespace onchip
