#include "model/prediction.hpp"

#include "model/traffic.hpp"

namespace onchip::model {
namespace {

double sharers(const Problem& problem, const Tensor& tensor) {
  return static_cast<double>(problem.batch * problem.num_heads_q) /
         static_cast<double>(tensor.shape[0] * tensor.shape[1]);
}

/// Everything but the lengths.
AttentionShape common_shape(const Problem& problem) {
  AttentionShape shape;
  shape.num_heads_q = problem.num_heads_q;
  shape.num_heads_kv = problem.num_heads_kv;
  shape.head_dim = problem.head_dim;
  shape.head_dim_v = problem.head_dim_v;
  shape.window_left = problem.window_left;
  shape.window_right = problem.window_right;
  shape.top_left = problem.args.alignment == Alignment::top_left;
  shape.dtype = problem.dtype();
  shape.kv_dtype = problem.args.k.dtype;
  shape.scale_per_token = problem.k_scale_kind == ScaleGranularity::token;
  double unique_bytes_per_pair = 0;
  for (const Tensor* tensor : {&problem.args.bias, &problem.args.mask}) {
    if (!tensor->present() || problem.batch == 0) continue;
    const auto bytes = static_cast<double>(size_of(tensor->dtype));
    shape.score_bytes_per_pair += bytes;
    unique_bytes_per_pair += bytes / sharers(problem, *tensor);
  }
  if (unique_bytes_per_pair > 0) shape.score_sharers = shape.score_bytes_per_pair / unique_bytes_per_pair;
  return shape;
}

Traffic traffic_of(const Machine& machine, const Problem& problem, const Plan& plan, const AttentionShape& shape) {
  if (plan.backend == Backend::standard) {
    StandardMethod method;
    method.score_dtype = problem.dtype() == DType::f64 ? DType::f64 : DType::f32;
    method.textbook = false;
    return standard_traffic(machine, shape, method, problem.pass);
  }
  Tiling tiling;
  if (plan.tile.tile_m > 0) tiling.tile_m = plan.tile.tile_m;
  if (plan.tile.tile_n > 0) tiling.tile_n = plan.tile.tile_n;
  tiling.heads_per_tile = plan.tile.heads_per_tile > 0 ? plan.tile.heads_per_tile : problem.heads_per_kv();
  tiling.num_splits = plan.tile.num_splits;
  return tiled_traffic(machine, shape, tiling, problem.pass);
}

}  // namespace

Prediction predict(const Problem& problem, const Plan& plan, const CacheSizes& caches) {
  return predict(problem, plan, cpu_machine("host", plan.num_threads, caches, {}));
}

Prediction predict(const Problem& problem, const Plan& plan, const Machine& machine) {
  Prediction prediction;
  AttentionShape shape = common_shape(problem);
  for (std::int64_t b = 0; b < problem.batch; b += shape.batch) {
    const Sequence sequence = problem.sequence(b);
    shape.seqlen_q = sequence.seqlen_q;
    shape.seqlen_k = sequence.seqlen_k;
    shape.batch = 1;  // and all that follow with the same lengths
    for (std::int64_t next = b + 1; next < problem.batch; ++next, ++shape.batch) {
      const Sequence other = problem.sequence(next);
      if (other.seqlen_q != shape.seqlen_q || other.seqlen_k != shape.seqlen_k) break;
    }
    const Traffic traffic = traffic_of(machine, problem, plan, shape);
    prediction.flops += shape.flops(problem.pass);
    prediction.main_memory_read_bytes += traffic.main_memory().read_bytes;
    prediction.main_memory_write_bytes += traffic.main_memory().write_bytes + traffic.dirty_bytes;
  }
  return prediction;
}

}  // namespace onchip::model
