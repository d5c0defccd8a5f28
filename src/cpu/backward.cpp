// cpu_backward: tiled attention gradients in the type that the problem computes in, or in double where its logits ask
// for that.
#include <algorithm>
#include <cmath>

#include "cpu/forward_in_double.hpp"
#include "cpu/implementations.hpp"
#include "cpu/tiled_backward.hpp"

namespace onchip::cpu {
namespace {

/// Marks heads for every lse.
void see_all_lse(const Problem& problem, const LargeLogits& large) {
  const LseRows rows(problem, problem.args.lse);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Sequence s = problem.sequence(b);
    for (std::int64_t head = 0; head < problem.num_heads_q; ++head)
      for (std::int64_t i = 0; i < s.seqlen_q; ++i)
        large.see_lse(b, head / problem.heads_per_kv(), load_element(problem.args.lse.dtype, rows.at(s, i, head), 0));
  }
}

/// The same gradients from a forward pass that is repeated in double, and computed in double.
class BackwardInDouble {
 public:
  BackwardInDouble(const Problem& problem, WorkspaceCursor& cursor) : given_(problem.args), problem_(problem) {
    const Tensor& q = problem.args.q;
    Tensor& o = problem_.args.o;
    Tensor& lse = problem_.args.lse;
    o = lse = Tensor{};
    o.rank = q.rank;
    o.shape = q.shape;
    o.shape[q.rank - 1] = problem.head_dim_v;
    lse.rank = q.rank - 1;
    if (problem.layout_q == Layout::packed)
      lse.shape = {problem.num_heads_q, q.shape[0]};
    else
      lse.shape = {q.shape[0], problem.num_heads_q, q.shape[1]};
    place(o, cursor);
    place(lse, cursor);
  }

  /// Workspace beside o and lse: the two passes take turns.
  std::size_t pass_bytes(const HeadSelection& selected, const SinkGradient& dsink) const {
    WorkspaceCursor cursor;
    tiled(selected, dsink, cursor);
    return std::max(cursor.used_bytes(), forward_in_double_bytes(as_forward()));
  }

  void run(const HeadSelection& selected, const SinkGradient& dsink, bool first, std::span<std::byte> workspace) const {
    forward_in_double(as_forward(), selected, workspace);
    keep_merged_rows(selected);
    WorkspaceCursor cursor(workspace);
    const TiledBackward<double> gradients = tiled(selected, dsink, cursor);
    if (first) gradients.start();
    gradients.run();
  }

 private:
  TiledBackward<double> tiled(const HeadSelection& selected, const SinkGradient& dsink, WorkspaceCursor& cursor) const {
    return {problem_, choose_backward_tile<double>(problem_), problem_.num_threads, selected, dsink, cursor};
  }

  /// Makes it a row-major f64 tensor in the workspace.
  static void place(Tensor& tensor, WorkspaceCursor& cursor) {
    tensor.dtype = DType::f64;
    std::int64_t elements = 1;
    for (int d = tensor.rank - 1; d >= 0; --d) {
      tensor.stride[d] = elements;
      elements *= tensor.shape[d];
    }
    tensor.data = cursor.take<double>(static_cast<std::size_t>(elements));
  }

  /// Rows whose o and lse the caller has from a merge over more keys than these keep them.
  void keep_merged_rows(const HeadSelection& selected) const {
    const LseRows given_lse(problem_, given_.lse), own_lse(problem_, problem_.args.lse);
    const QueryRows given_o(problem_, given_.o), own_o(problem_, problem_.args.o);
    const std::int64_t steps = (problem_.max_seqlen_q + kRowsPerStep - 1) / kRowsPerStep;
    parallel_tasks(problem_.batch * problem_.num_heads_q * steps, problem_.num_threads, [&](std::int64_t task, int) {
      const Sequence s = problem_.sequence(task / (problem_.num_heads_q * steps));
      const std::int64_t head = task / steps % problem_.num_heads_q, first = task % steps * kRowsPerStep;
      if (!selected(s.batch, head / problem_.heads_per_kv())) return;
      for (std::int64_t i = first; i < std::min(first + kRowsPerStep, s.seqlen_q); ++i) {
        auto& own = *reinterpret_cast<double*>(own_lse.at(s, i, head));
        const double given = load_element(given_.lse.dtype, given_lse.at(s, i, head), 0);
        if (is_own_lse(given, own)) continue;
        own = given;
        for (std::int64_t c = 0; c < problem_.head_dim_v; ++c)
          reinterpret_cast<double*>(own_o.at(s, i, head))[c] = load_element(given_.o.dtype, given_o.at(s, i, head), c);
      }
    });
  }

  Problem as_forward() const {
    Problem forward = problem_;
    forward.pass = Pass::forward;
    forward.args.batch_invariant = false;  // it is: all of it runs in tiles
    return forward;
  }

  Attention given_;
  Problem problem_;
};

std::optional<std::string> reject(const Problem&) { return std::nullopt; }

/// What both runs over a problem share, at the beginning of the workspace.
struct Shared {
  LargeLogits large;
  SinkGradient dsink;

  Shared(const Problem& problem, WorkspaceCursor& cursor) : large(problem, cursor), dsink(problem, cursor) {}
};

template <typename T>
std::size_t tiled_bytes(const Problem& problem, const Plan& plan, const Shared& shared) {
  WorkspaceCursor cursor;
  const HeadSelection selected{shared.large, false};
  TiledBackward<T>(problem, plan.tile, plan.num_threads, selected, shared.dsink, cursor);
  return cursor.used_bytes();
}

/// The heads without a mark.
template <typename T>
void run_tiled(const Problem& problem, const Plan& plan, const Shared& shared, std::span<std::byte> workspace) {
  WorkspaceCursor cursor(workspace);
  const HeadSelection selected{shared.large, false};
  const TiledBackward<T> gradients(problem, plan.tile, plan.num_threads, selected, shared.dsink, cursor);
  gradients.start();
  gradients.run();
}

/// The heads with a mark.
void run_in_double(const Problem& problem, const Shared& shared, bool first, std::span<std::byte> workspace) {
  WorkspaceCursor cursor(workspace);
  const BackwardInDouble in_double(problem, cursor);
  in_double.run({shared.large, true}, shared.dsink, first, workspace.subspan(cursor.used_bytes()));
}

std::size_t in_double_bytes(const Problem& problem, const Shared& shared) {
  WorkspaceCursor cursor;
  const BackwardInDouble in_double(problem, cursor);
  return cursor.used_bytes() + in_double.pass_bytes({shared.large, true}, shared.dsink);
}

void configure(const Problem& problem, Plan& plan) {
  const bool f64 = problem.dtype() == DType::f64;
  WorkspaceCursor cursor;
  const Shared shared(problem, cursor);
  plan.tile = f64 ? choose_backward_tile<double>(problem) : choose_backward_tile<float>(problem);
  const std::size_t bytes = f64 ? tiled_bytes<double>(problem, plan, shared)
                                : std::max({tiled_bytes<float>(problem, plan, shared), in_double_bytes(problem, shared),
                                            LargeLogits::scratch_bytes(problem)});
  plan.workspace_bytes = cursor.used_bytes() + bytes;
  plan.tile = with_even_tiles(problem, plan.tile);
}

Status run(const Problem& problem, const Plan& plan, std::span<std::byte> workspace) {
  WorkspaceCursor cursor(workspace);
  const Shared shared(problem, cursor);
  const std::span<std::byte> scratch = workspace.subspan(cursor.used_bytes());
  if (problem.dtype() == DType::f64) {
    run_tiled<double>(problem, plan, shared, scratch);
  } else {
    shared.large.start(plan.num_threads, scratch.data());
    see_all_lse(problem, shared.large);
    mark_whole_groups(problem, shared.large);
    const bool all = shared.large.all();
    if (!all) run_tiled<float>(problem, plan, shared, scratch);
    if (shared.large.any()) run_in_double(problem, shared, all, scratch);
  }
  shared.dsink.write();
  return {};
}

}  // namespace

const Implementation kBackward{"cpu_backward", Backend::cpu, Pass::backward, reject, configure, run};

}  // namespace onchip::cpu
