// One step of generation: append new keys and values to the cache (core/append.hpp), then attend to all of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.hpp"

namespace onchip {

/// A validated Decode.
struct DecodeProblem {
  DecodeProblem() = default;
  DecodeProblem(const DecodeProblem&) = delete;  // `after` points into `lengths`
  DecodeProblem& operator=(const DecodeProblem&) = delete;

  Decode args;
  Problem before;  // with the caller's seqused_k: the first new key of sequence b is its key seqlen_k
  Problem after;   // what is attended to: the new keys count, and q is row-major scratch where it is rotated
  std::vector<std::int32_t> lengths;  // seqused_k of `after`; empty where it is unknown (planning)

  bool appends() const { return args.k_new.present(); }
  bool rotates() const { return args.rotary.cos.present(); }
  /// New keys of a sequence of `before` or `after`.
  std::int64_t num_new(const Sequence& sequence) const {
    if (!appends()) return 0;
    return before.layout_q == Layout::packed ? sequence.seqlen_q : args.k_new.shape[1];
  }
};

Status make_decode_problem(const Decode& args, Use use, DecodeProblem& problem);
Status make_plan(const DecodeProblem& problem, Plan& plan);

/// Nothing is written unless the plan and the workspace are right.
Status run(const DecodeProblem& problem, std::span<std::byte> workspace, Plan& plan);

}  // namespace onchip
