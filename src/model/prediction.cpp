#include "model/prediction.hpp"

namespace onchip::model {
namespace {

/// Floating-point operations: 2·(D + Dv) per visible (query, key) pair going forward; backward five products, three
/// over D and two over Dv.
double flops(const Problem& problem) {
  double pairs = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Sequence sequence = problem.sequence(b);
    pairs += sequence.mask.visible_pairs(sequence.seqlen_q);
  }
  pairs *= static_cast<double>(problem.num_heads_q);
  const std::int64_t d = problem.head_dim;
  const std::int64_t dv = problem.head_dim_v;
  return 2.0 * pairs * static_cast<double>(problem.pass == Pass::forward ? d + dv : 3 * d + 2 * dv);
}

}  // namespace

Prediction predict(const Problem& problem, const Plan&) {
  Prediction prediction;
  prediction.flops = flops(problem);
  return prediction;
}

}  // namespace onchip::model
