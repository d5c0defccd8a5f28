// cpu_backward: tiled attention gradients in the type that the problem computes in, or in double where its logits ask
// for that.
#include <algorithm>
#include <cmath>

#include "cpu/forward_in_double.hpp"
#include "cpu/implementations.hpp"
#include "cpu/tiled_backward.hpp"

namespace onchip::cpu {
namespace {

double largest_lse(const Problem& problem) {
  const LseRows rows(problem, problem.args.lse);
  double largest = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Sequence s = problem.sequence(b);
    for (std::int64_t head = 0; head < problem.num_heads_q; ++head)
      for (std::int64_t i = 0; i < s.seqlen_q; ++i) {
        const double lse = load_element(problem.args.lse.dtype, rows.at(s, i, head), 0);
        if (std::isfinite(lse)) largest = std::max(largest, std::abs(lse));
      }
  }
  return largest;
}

/// The same gradients from a forward pass that is repeated in double, and computed in double.
class BackwardInDouble {
 public:
  BackwardInDouble(const Problem& problem, WorkspaceCursor& cursor) : problem_(problem) {
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
  std::size_t pass_bytes() const {
    WorkspaceCursor cursor;
    TiledBackward<double>(problem_, choose_backward_tile<double>(problem_), problem_.num_threads, cursor);
    return std::max(cursor.used_bytes(), forward_in_double_bytes(as_forward()));
  }

  Status run(std::span<std::byte> workspace) const {
    ONCHIP_RETURN_IF_ERROR(forward_in_double(as_forward(), workspace));
    WorkspaceCursor cursor(workspace);
    TiledBackward<double>(problem_, choose_backward_tile<double>(problem_), problem_.num_threads, cursor).run();
    return {};
  }

 private:
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

  Problem as_forward() const {
    Problem forward = problem_;
    forward.pass = Pass::forward;
    return forward;
  }

  Problem problem_;
};

std::optional<std::string> reject(const Problem&) { return std::nullopt; }

template <typename T>
std::size_t tiled_bytes(const Problem& problem, const Plan& plan) {
  WorkspaceCursor cursor;
  TiledBackward<T>(problem, plan.tile, plan.num_threads, cursor);
  return cursor.used_bytes();
}

template <typename T>
void run_tiled(const Problem& problem, const Plan& plan, std::span<std::byte> workspace) {
  WorkspaceCursor cursor(workspace);
  TiledBackward<T>(problem, plan.tile, plan.num_threads, cursor).run();
}

std::size_t in_double_bytes(const Problem& problem) {
  WorkspaceCursor cursor;
  const BackwardInDouble in_double(problem, cursor);
  return cursor.used_bytes() + in_double.pass_bytes();
}

void configure(const Problem& problem, Plan& plan) {
  const bool f64 = problem.dtype() == DType::f64;
  plan.tile = f64 ? choose_backward_tile<double>(problem) : choose_backward_tile<float>(problem);
  plan.workspace_bytes = f64 ? tiled_bytes<double>(problem, plan) : tiled_bytes<float>(problem, plan);
  if (problem.dtype() == DType::f32) plan.workspace_bytes = std::max(plan.workspace_bytes, in_double_bytes(problem));
  plan.tile = with_even_tiles(problem, plan.tile);
}

Status run(const Problem& problem, const Plan& plan, std::span<std::byte> workspace) {
  if (problem.dtype() == DType::f32 && largest_lse(problem) > kLargestLseOfFloat) {
    WorkspaceCursor cursor(workspace);
    const BackwardInDouble in_double(problem, cursor);
    return in_double.run(workspace.subspan(cursor.used_bytes()));
  }
  if (problem.dtype() == DType::f64)
    run_tiled<double>(problem, plan, workspace);
  else
    run_tiled<float>(problem, plan, workspace);
  return {};
}

}  // namespace

const Implementation kBackward{"cpu_backward", Backend::cpu, Pass::backward, reject, configure, run};

}  // namespace onchip::cpu
