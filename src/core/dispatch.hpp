// Walks the list of implementations and makes the Plan.
#pragma once

#include <string>

#include "core/implementation.hpp"

namespace onchip {

using ImplementationList = std::span<const Implementation* const>;

/// `list` holds the candidates, fastest first; tests give lists of their own.
Status make_plan(const Problem& problem, Plan& plan, ImplementationList list = implementations());

/// Enough bytes, aligned.
Status check_workspace(std::span<std::byte> workspace, const Plan& plan);

/// Makes the plan, checks the workspace and runs. `workspace` may hold more than is needed.
Status run(const Problem& problem, std::span<std::byte> workspace, Plan& plan,
           ImplementationList list = implementations());

}  // namespace onchip
