// The C++ front: Status becomes onchip::Error.
#include "core/decode.hpp"
#include "core/dispatch.hpp"
#include "core/error.hpp"
#include "core/explain.hpp"
#include "core/merge.hpp"
#include "core/workspace.hpp"
#include "cuda/workspace.hpp"

namespace onchip {
namespace {

Problem validated(const Attention& args, Pass pass, Use use) {
  Problem problem;
  check(make_problem(args, pass, use, problem));
  return problem;
}

Plan run_with(const Attention& args, Pass pass, std::span<std::byte> workspace) {
  Plan done;
  check(run(validated(args, pass, Use::run), workspace, done));
  return done;
}

/// Problem or DecodeProblem, on the tensors of `args`.
template <typename AnyProblem>
Plan run_allocating(const AnyProblem& problem, const Attention& args) {
  Plan planned;
  check(make_plan(problem, planned));
  Workspace of_host;
  cuda::StreamWorkspace of_device;
  if (args.device < 0)
    check(of_host.allocate(planned.workspace_bytes));
  else
    check(of_device.allocate(args.device, args.stream, planned.workspace_bytes));
  check(run(problem, args.device < 0 ? of_host.bytes() : of_device.bytes(), planned));
  return planned;
}

}  // namespace

Plan plan(const Attention& problem, Pass pass) {
  Plan planned;
  check(make_plan(validated(problem, pass, Use::plan), planned));
  return planned;
}

std::string explain(const Attention& problem, Pass pass) { return to_text(plan(problem, pass)); }

std::string explain_json(const Attention& problem, Pass pass) { return to_json(plan(problem, pass)); }

Plan forward(const Attention& problem, std::span<std::byte> workspace) {
  return run_with(problem, Pass::forward, workspace);
}

Plan forward(const Attention& problem) { return run_allocating(validated(problem, Pass::forward, Use::run), problem); }

Plan backward(const Attention& problem, std::span<std::byte> workspace) {
  return run_with(problem, Pass::backward, workspace);
}

Plan backward(const Attention& problem) {
  return run_allocating(validated(problem, Pass::backward, Use::run), problem);
}

Plan plan(const Decode& problem) {
  DecodeProblem validated;
  check(make_decode_problem(problem, Use::plan, validated));
  Plan planned;
  check(make_plan(validated, planned));
  return planned;
}

std::string explain(const Decode& problem) { return to_text(plan(problem)); }

std::string explain_json(const Decode& problem) { return to_json(plan(problem)); }

Plan decode(const Decode& problem, std::span<std::byte> workspace) {
  DecodeProblem validated;
  check(make_decode_problem(problem, Use::run, validated));
  Plan done;
  check(run(validated, workspace, done));
  return done;
}

Plan decode(const Decode& problem) {
  DecodeProblem validated;
  check(make_decode_problem(problem, Use::run, validated));
  return run_allocating(validated, problem.attention);
}

void merge(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o, const Tensor& lse) {
  check(merge_parts(o_parts, lse_parts, o, lse, -1, nullptr));
}

void merge_on_device(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                     const Tensor& lse, int device, void* stream) {
  check(device < 0 ? invalid("device: {}, expected a CUDA device", device)
                   : merge_parts(o_parts, lse_parts, o, lse, device, stream));
}

const char* version() { return ONCHIP_VERSION; }

}  // namespace onchip
