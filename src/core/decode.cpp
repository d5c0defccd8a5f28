#include "core/decode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/append.hpp"
#include "core/check.hpp"
#include "core/dispatch.hpp"
#include "core/views.hpp"
#include "core/workspace.hpp"
#include "cuda/device_steps.hpp"

namespace onchip {
namespace {

Status check_new_rows(const char* name, const Tensor& rows, std::int64_t head_dim, const DecodeProblem& p, Use use) {
  const Problem& before = p.before;
  ONCHIP_RETURN_IF_ERROR(check_type(name, rows, before.dtype()));
  if (before.layout_q == Layout::packed) {
    ONCHIP_RETURN_IF_ERROR(check_shape(name, rows, {before.args.q.shape[0], before.num_heads_kv, head_dim},
                                       "packed as q, [total_q, Hk, D]"));
  } else {
    ONCHIP_RETURN_IF_ERROR(check_rank(name, rows, 4, "[B, Snew, Hk, D]"));
    ONCHIP_RETURN_IF_ERROR(check_shape(name, rows, {before.batch, p.args.k_new.shape[1], before.num_heads_kv, head_dim},
                                       "[B, Snew, Hk, D]"));
  }
  ONCHIP_RETURN_IF_ERROR(check_view(name, rows));
  return check_data(name, rows, use);
}

/// A scale that new rows are divided by. Scales per token are written instead.
Status check_cache_scale(const char* name, const Tensor& scale, ScaleGranularity kind, const Problem& before) {
  if (kind == ScaleGranularity::none) return {};
  if (kind == ScaleGranularity::token) return check_writable(name, scale);
  if (scale.data == nullptr || before.args.device >= 0) return {};
  const KeyScales scales(before, scale, kind);
  for (std::int64_t b = 0; b < before.batch; ++b)
    for (std::int64_t head = 0; head < before.num_heads_kv; ++head) {
      const float value = scales.at(before.sequence(b), 0, head);
      if (!std::isfinite(value) || value == 0.0f)
        return invalid("{}: {} for head {} of sequence {}, expected a finite number other than 0 to divide by", name,
                       value, head, b);
    }
  return {};
}

Status check_append(const DecodeProblem& p, Use use) {
  const Decode& d = p.args;
  if (!d.k_new.present() && !d.v_new.present()) return {};
  if (!d.k_new.present()) return invalid("k_new: missing, expected it together with v_new");
  if (!d.v_new.present()) return invalid("v_new: missing, expected it together with k_new");
  if (!d.attention.seqused_k.present())
    return invalid("seqused_k: missing, expected the number of keys that the cache holds before the append");
  ONCHIP_RETURN_IF_ERROR(check_new_rows("k_new", d.k_new, p.before.head_dim, p, use));
  ONCHIP_RETURN_IF_ERROR(check_new_rows("v_new", d.v_new, p.before.head_dim_v, p, use));
  ONCHIP_RETURN_IF_ERROR(check_writable("k", d.attention.k));
  ONCHIP_RETURN_IF_ERROR(check_writable("v", d.attention.v));
  ONCHIP_RETURN_IF_ERROR(check_cache_scale("k_scale", d.attention.k_scale, p.before.k_scale_kind, p.before));
  return check_cache_scale("v_scale", d.attention.v_scale, p.before.v_scale_kind, p.before);
}

Status check_angles(const char* name, const Tensor& angles, const Problem& before, Use use) {
  ONCHIP_RETURN_IF_ERROR(check_rank(name, angles, 2, "[max_position, R/2]"));
  ONCHIP_RETURN_IF_ERROR(check_view(name, angles));
  if (angles.dtype != DType::f32 && angles.dtype != before.dtype())
    return invalid("{}: type {}, expected f32{}", name, onchip::name(angles.dtype),
                   before.dtype() == DType::f32 ? "" : fmt::format(" or {} as q has", onchip::name(before.dtype())));
  if (angles.shape[1] < 1 || angles.shape[1] > before.head_dim / 2)
    return invalid("{}: shape {}, expected [max_position, R/2] with R/2 from 1 to {}, half of q's head dimension", name,
                   shape_text(angles), before.head_dim / 2);
  return check_data(name, angles, use);
}

Status check_rotary(const DecodeProblem& p, Use use) {
  const Rotary& r = p.args.rotary;
  if (!r.cos.present() && !r.sin.present()) return {};
  if (!r.cos.present()) return invalid("rotary.cos: missing, expected it together with rotary.sin");
  if (!r.sin.present()) return invalid("rotary.sin: missing, expected it together with rotary.cos");
  if (!p.args.attention.seqused_k.present())
    return invalid("seqused_k: missing, expected the positions at which the rotary embedding begins");
  ONCHIP_RETURN_IF_ERROR(check_angles("rotary.cos", r.cos, p.before, use));
  ONCHIP_RETURN_IF_ERROR(check_angles("rotary.sin", r.sin, p.before, use));
  return check_shape("rotary.sin", r.sin, {r.cos.shape[0], r.cos.shape[1]}, "the shape of rotary.cos");
}

/// seqused_k with the new keys. Unknown, and left empty, where there is no data to read it from: planning, and device
/// memory.
Status read_lengths(DecodeProblem& p) {
  const Attention& a = p.args.attention;
  const bool packed = p.before.layout_q == Layout::packed;
  if (!p.appends() || a.device >= 0 || a.seqused_k.data == nullptr || (packed && a.cu_seqlens_q.data == nullptr))
    return {};
  for (std::int64_t b = 0; b < p.before.batch; ++b) {
    const Sequence sequence = p.before.sequence(b);
    const std::int64_t room =
        std::min<std::int64_t>(p.before.capacity(b), std::numeric_limits<std::int32_t>::max()) - p.num_new(sequence);
    if (sequence.seqlen_k > room)
      return invalid("seqused_k: {} at index {}, expected at most {}, so that {} new keys fit into the {} of the cache",
                     sequence.seqlen_k, b, room, p.num_new(sequence), p.before.capacity(b));
    p.lengths.push_back(static_cast<std::int32_t>(sequence.seqlen_k + p.num_new(sequence)));
  }
  return {};
}

Tensor row_major(const Tensor& like, void* data) {
  const auto& s = like.shape;
  return like.rank == 3 ? contiguous(data, like.dtype, {s[0], s[1], s[2]})
                        : contiguous(data, like.dtype, {s[0], s[1], s[2], s[3]});
}

/// Results and data were checked with `before`.
Status make_after(DecodeProblem& p) {
  Attention after = p.args.attention;
  if (p.appends()) after.seqused_k.data = p.lengths.empty() ? nullptr : p.lengths.data();
  ONCHIP_RETURN_IF_ERROR(make_problem(after, Pass::forward, Use::plan, p.after));
  if (p.rotates()) p.after.args.q = row_major(after.q, nullptr);
  return {};
}

/// Every position whose angle is looked up is in the tables.
Status check_positions(const DecodeProblem& p) {
  const Tensor& used = p.after.args.seqused_k;
  if (!p.rotates() || p.after.args.device >= 0 || (used.data == nullptr && p.after.batch > 0)) return {};
  const std::int64_t max_position = p.args.rotary.cos.shape[0];
  for (std::int64_t b = 0; b < p.after.batch; ++b) {
    const Sequence sequence = p.after.sequence(b);
    const std::int64_t first_q = sequence.mask.shift;
    if (sequence.seqlen_q > 0 && first_q < 0)
      return invalid(
          "seqused_k: {} keys for the {} queries of sequence {}, expected at least as many keys, so that no "
          "rotary position is negative",
          sequence.seqlen_k, sequence.seqlen_q, b);
    const std::int64_t end_q = sequence.seqlen_q > 0 ? first_q + sequence.seqlen_q : 0;
    const std::int64_t end_k = p.num_new(sequence) > 0 ? sequence.seqlen_k : 0;
    if (std::max(end_q, end_k) > max_position)
      return invalid("rotary.cos: {} positions, expected at least {} for sequence {}", max_position,
                     std::max(end_q, end_k), b);
  }
  return {};
}

bool on_device(const DecodeProblem& p) { return p.args.attention.device >= 0; }

std::size_t length_bytes(const DecodeProblem& p) {
  return on_device(p) && p.appends() ? aligned_bytes<std::int32_t>(static_cast<std::size_t>(p.after.batch)) : 0;
}

std::size_t rotated_bytes(const DecodeProblem& p) {
  if (!p.rotates()) return 0;
  const Tensor& q = p.after.args.q;
  std::size_t bytes = size_of(q.dtype);
  for (int d = 0; d < q.rank; ++d) bytes *= static_cast<std::size_t>(q.shape[d]);
  return round_up(bytes, kCacheLine);
}

}  // namespace

Status make_decode_problem(const Decode& args, Use use, DecodeProblem& p) {
  p.args = args;
  p.lengths.clear();
  ONCHIP_RETURN_IF_ERROR(make_problem(args.attention, Pass::forward, use, p.before));
  ONCHIP_RETURN_IF_ERROR(check_append(p, use));
  ONCHIP_RETURN_IF_ERROR(check_rotary(p, use));
  ONCHIP_RETURN_IF_ERROR(read_lengths(p));
  ONCHIP_RETURN_IF_ERROR(make_after(p));
  return check_positions(p);
}

/// Main memory that the append moves: new rows are read, and written as the cache holds them.
void add_append(const DecodeProblem& p, Prediction& predicted) {
  if (!p.appends()) return;
  double new_keys = 0;
  for (std::int64_t b = 0; b < p.before.batch; ++b) new_keys += static_cast<double>(p.num_new(p.before.sequence(b)));
  // While lengths are unknown each packed sequence counts as the longest possible; together they are the tensor's rows.
  if (p.before.layout_q == Layout::packed) new_keys = static_cast<double>(p.before.args.q.shape[0]);
  const double rows = new_keys * static_cast<double>(p.before.num_heads_kv);
  const auto of = [&](const Tensor& fresh, const Tensor& cache, ScaleGranularity scale, std::int64_t columns) {
    const auto width = static_cast<double>(columns);
    const double scale_bytes = scale == ScaleGranularity::token ? sizeof(float) : 0.0;
    predicted.main_memory_read_bytes += rows * width * static_cast<double>(size_of(fresh.dtype));
    predicted.main_memory_write_bytes += rows * (width * static_cast<double>(size_of(cache.dtype)) + scale_bytes);
  };
  of(p.args.k_new, p.before.args.k, p.before.k_scale_kind, p.before.head_dim);
  of(p.args.v_new, p.before.args.v, p.before.v_scale_kind, p.before.head_dim_v);
}

/// Scratch of the append is free again when the attention begins. On a GPU there is none, but the lengths with the new
/// keys are there.
Status make_plan(const DecodeProblem& p, Plan& plan) {
  ONCHIP_RETURN_IF_ERROR(make_plan(p.after, plan));
  const std::size_t scratch = on_device(p) ? 0 : append_scratch_bytes(p);
  plan.workspace_bytes = rotated_bytes(p) + length_bytes(p) + std::max(scratch, plan.workspace_bytes);
  add_append(p, plan.predicted);
  return {};
}

Status run(const DecodeProblem& p, std::span<std::byte> workspace, Plan& plan) {
  Plan whole;
  ONCHIP_RETURN_IF_ERROR(make_plan(p, whole));
  ONCHIP_RETURN_IF_ERROR(check_workspace(workspace, whole));
  const std::span<std::byte> scratch = workspace.subspan(rotated_bytes(p) + length_bytes(p));
  Problem attention = p.after;
  if (p.rotates()) attention.args.q.data = workspace.data();
  if (on_device(p)) {
    auto* lengths = reinterpret_cast<std::int32_t*>(workspace.data() + rotated_bytes(p));
    if (p.appends()) attention.args.seqused_k = contiguous(lengths, DType::i32, {p.after.batch});
    if (p.appends() || p.rotates()) ONCHIP_RETURN_IF_ERROR(cuda::queue_append(p, attention.args.q, lengths));
  } else {
    if (p.rotates()) rotate_queries(p, attention.args.q, scratch.data());
    if (p.appends()) append(p, scratch.data());
  }
  ONCHIP_RETURN_IF_ERROR(run(attention, scratch, plan));
  plan.workspace_bytes = whole.workspace_bytes;
  plan.predicted = whole.predicted;
  return {};
}

}  // namespace onchip
