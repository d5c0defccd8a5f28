#include "core/dispatch.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/host.hpp"
#include "cuda/implementations.hpp"
#include "model/prediction.hpp"

namespace onchip {
namespace {

constexpr std::size_t kWorkspaceAlignment = 64;

const char* name(Backend backend) {
  switch (backend) {
    case Backend::automatic:
      return "auto";
    case Backend::cpu:
      return "cpu";
    case Backend::standard:
      return "standard";
    case Backend::cuda:
      return "cuda";
  }
  return "unknown";
}

std::vector<const Implementation*> candidates(ImplementationList all, Pass pass) {
  std::vector<const Implementation*> found;
  for (const Implementation* implementation : all)
    if (implementation->pass == pass) found.push_back(implementation);
  return found;
}

std::string names(const std::vector<const Implementation*>& list) {
  std::string text;
  for (const Implementation* implementation : list)
    text += (text.empty() ? "" : ", ") + std::string(implementation->name);
  return text;
}

std::string other_backend(Backend asked) { return fmt::format("backend {} was asked for", name(asked)); }

/// Why an implementation of the host cannot reach the tensors, or nothing.
std::optional<std::string> out_of_reach(const Problem& problem, const Implementation& candidate) {
  if (candidate.backend == Backend::cuda || problem.args.device < 0) return std::nullopt;
  return fmt::format("the tensors are in the memory of CUDA device {}", problem.args.device);
}

/// The first that accepts, with a rejection for each of the others; null when none does.
const Implementation* choose(const Problem& problem, const std::vector<const Implementation*>& list, Plan& plan) {
  const Backend asked = problem.args.backend;
  const Implementation* chosen = nullptr;
  for (const Implementation* candidate : list) {
    std::optional<std::string> reason;
    if (asked != Backend::automatic && candidate->backend != asked)
      reason = other_backend(asked);
    else if (chosen)
      reason = fmt::format("ranks below {}, which accepts the problem", chosen->name);
    else if (reason = out_of_reach(problem, *candidate); !reason)
      reason = candidate->reject(problem);
    if (reason)
      plan.rejections.push_back({candidate->name, *reason});
    else
      chosen = candidate, plan.num_faster = static_cast<int>(plan.rejections.size());
  }
  return chosen;
}

/// Without those of other backends than was asked for, which go without saying.
std::string reasons(const Plan& plan, Backend asked) {
  std::string text;
  for (const Rejection& rejection : plan.rejections)
    if (rejection.reason != other_backend(asked))
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", rejection.implementation, rejection.reason);
  return text;
}

Status check_strict(const Problem& problem, const std::vector<const Implementation*>& list,
                    const Implementation* chosen, const Plan& plan) {
  const std::string& wanted = problem.args.at_least;
  if (wanted.empty()) return {};
  const auto by_name = [&](const Implementation* candidate) { return wanted == candidate->name; };
  const auto limit = std::find_if(list.begin(), list.end(), by_name);
  if (limit == list.end()) return invalid("at_least: '{}', expected one of {}", wanted, names(list));
  if (chosen == nullptr || std::find(list.begin(), limit + 1, chosen) == limit + 1)
    return unsupported("at_least: {} was asked for, but {} would run; {}", wanted, chosen ? chosen->name : "nothing",
                       reasons(plan, problem.args.backend));
  return {};
}

/// The plan and, for run(), the implementation behind it.
Status make_plan(const Problem& problem, ImplementationList all, Plan& plan, const Implementation*& chosen) {
  const std::vector<const Implementation*> list = candidates(all, problem.pass);
  plan = Plan{};
  plan.pass = problem.pass;
  chosen = choose(problem, list, plan);
  ONCHIP_RETURN_IF_ERROR(check_strict(problem, list, chosen, plan));
  if (chosen == nullptr)
    return unsupported("backend: no implementation for backend {} accepts the problem; {}", name(problem.args.backend),
                       reasons(plan, problem.args.backend));
  plan.implementation = chosen->name;
  plan.backend = chosen->backend;
  plan.num_threads = problem.num_threads;
  chosen->configure(problem, plan);
  plan.predicted = plan.backend == Backend::cuda ? model::predict(problem, plan, cuda::machine_of(problem))
                                                 : model::predict(problem, plan, cpu::host_caches());
  return {};
}

}  // namespace

Status make_plan(const Problem& problem, Plan& plan, ImplementationList list) {
  const Implementation* chosen = nullptr;
  return make_plan(problem, list, plan, chosen);
}

Status check_workspace(std::span<std::byte> workspace, const Plan& plan) {
  if (workspace.size() < plan.workspace_bytes)
    return {StatusCode::workspace_too_small, fmt::format("workspace: {} bytes, expected at least {} for {}",
                                                         workspace.size(), plan.workspace_bytes, plan.implementation)};
  if (plan.workspace_bytes > 0 && reinterpret_cast<std::uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0)
    return invalid("workspace: address {}, expected a multiple of {}", static_cast<void*>(workspace.data()),
                   kWorkspaceAlignment);
  return {};
}

Status run(const Problem& problem, std::span<std::byte> workspace, Plan& plan, ImplementationList list) {
  const Implementation* chosen = nullptr;
  ONCHIP_RETURN_IF_ERROR(make_plan(problem, list, plan, chosen));
  ONCHIP_RETURN_IF_ERROR(check_workspace(workspace, plan));
  return chosen->run(problem, plan, workspace.first(plan.workspace_bytes));
}

}  // namespace onchip
