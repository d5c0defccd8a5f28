#include "cuda/device_steps.hpp"

#include <algorithm>
#include <limits>

#include "cuda/host/launch.hpp"
#include "cuda/host/layouts.hpp"
#include "cuda/host/step_kernels.hpp"
#include "cuda/shared/merge_params.hpp"

namespace onchip::cuda {
namespace {

constexpr int kWarps = 4;  // of a CTA, a row each

template <typename T>
const T* data(const Tensor& t) {
  return static_cast<const T*>(t.data);
}

AppendConfig append_config(const DecodeProblem& p) {
  AppendConfig config;
  config.q_type = element(p.before.dtype());
  config.kv_type = element(p.before.args.k.dtype);
  config.angle_type = p.rotates() ? element(p.args.rotary.cos.dtype) : Element::f32;
  return config;
}

AppendTarget append_target(const Problem& p, const Tensor& source, const Tensor& cache, const Tensor& scale,
                           ScaleGranularity kind) {
  const bool packed_k = p.layout_k == Layout::packed;
  AppendTarget to{};
  to.source = data<char>(source);
  to.cache = static_cast<char*>(cache.data);
  to.scale = static_cast<char*>(scale.data);
  to.source_layout = token_layout(source, p.layout_q == Layout::packed);
  to.cache_layout = token_layout(cache, packed_k);
  to.scale_layout = scale_layout(scale, kind, packed_k);
  to.scale_kind = kind == ScaleGranularity::none    ? CacheScale::none
                  : kind == ScaleGranularity::token ? CacheScale::token
                                                    : CacheScale::given;
  to.size = static_cast<std::int32_t>(cache.shape[cache.rank - 1]);
  return to;
}

void set_rotary(const DecodeProblem& p, AppendParams& x) {
  const Rotary& rotary = p.args.rotary;
  x.cos = data<char>(rotary.cos);
  x.sin = data<char>(rotary.sin);
  x.cos_row_bytes = row_layout(rotary.cos, -1, 0, -1).row_bytes;
  x.sin_row_bytes = row_layout(rotary.sin, -1, 0, -1).row_bytes;
  x.half_rotary = static_cast<std::int32_t>(rotary.cos.shape[1]);
  x.interleaved = rotary.interleaved;
}

AppendParams append_params(const DecodeProblem& p, const Tensor& rotated, std::int32_t* lengths) {
  const Problem& before = p.before;
  const Attention& a = before.args;
  const bool packed_q = before.layout_q == Layout::packed;
  AppendParams x{};
  x.q = data<char>(a.q);
  x.q_layout = token_layout(a.q, packed_q);
  if (p.rotates()) {
    x.rotated_q = static_cast<char*>(rotated.data);
    x.rotated_layout = token_layout(rotated, packed_q);
    set_rotary(p, x);
  }
  const std::int64_t queries = packed_q ? a.q.shape[0] : before.batch * a.q.shape[1];
  if (p.rotates()) x.query_rows = queries * before.num_heads_q;
  if (p.appends()) {
    x.k = append_target(before, p.args.k_new, a.k, a.k_scale, before.k_scale_kind);
    x.v = append_target(before, p.args.v_new, a.v, a.v_scale, before.v_scale_kind);
    x.seqlen_new = static_cast<std::int32_t>(packed_q ? queries : p.args.k_new.shape[1]);
    x.key_rows = (packed_q ? queries : before.batch * p.args.k_new.shape[1]) * before.num_heads_kv;
    x.lengths = lengths;
  }
  x.cu_seqlens_q = data<std::int32_t>(a.cu_seqlens_q);
  x.cu_seqlens_k = data<std::int32_t>(a.cu_seqlens_k);
  x.seqused_k = data<std::int32_t>(a.seqused_k);
  x.page_table = data<std::int32_t>(a.page_table);
  x.page_table_batch_stride = a.page_table.stride[0];
  x.page_table_page_stride = a.page_table.stride[1];
  x.page_size = static_cast<std::int32_t>(before.page_size);
  x.batch = static_cast<std::int32_t>(before.batch);
  x.num_heads_q = static_cast<std::int32_t>(before.num_heads_q);
  x.num_heads_kv = static_cast<std::int32_t>(before.num_heads_kv);
  x.seqlen_q = static_cast<std::int32_t>(packed_q ? queries : a.q.shape[1]);
  x.capacity = static_cast<std::int32_t>(before.max_seqlen_k);
  x.head_dim = static_cast<std::int32_t>(before.head_dim);
  x.top_left = a.alignment == Alignment::top_left;
  return x;
}

MergePart merge_part(const Tensor& o, const Tensor& lse) {
  const bool packed = o.rank == 3;
  return {static_cast<char*>(o.data), static_cast<char*>(lse.data), token_layout(o, packed), lse_layout(lse, packed),
          element(o.dtype)};
}

Status open_site(LaunchSite& site, int device) {
  ONCHIP_RETURN_IF_ERROR(driver_in_use().status);
  ONCHIP_RETURN_IF_ERROR(site.enter(device));
  return check_capability(site.gpu());
}

}  // namespace

KernelRequest append_request(const AppendConfig& c, const std::string& arch) {
  return {fmt::format("append_keys_{}_kv_{}_angles_{}", element_name(c.q_type), element_name(c.kv_type),
                      element_name(c.angle_type)),
          "cuda/device/kernels/append_keys.cuh",
          {fmt::format("ONCHIP_APPEND_CONFIG={{.q_type={},.kv_type={},.angle_type={}}}",
                       enumerator_text("Element", c.q_type), enumerator_text("Element", c.kv_type),
                       enumerator_text("Element", c.angle_type))},
          arch};
}

KernelRequest merge_request(const std::string& arch) {
  return {"merge_parts", "cuda/device/kernels/merge_parts.cuh", {}, arch};
}

Status queue_append(const DecodeProblem& p, const Tensor& rotated, std::int32_t* lengths) {
  LaunchSite site(driver_in_use().driver, p.args.attention.stream);
  ONCHIP_RETURN_IF_ERROR(open_site(site, p.args.attention.device));
  AppendParams params = append_params(p, rotated, lengths);
  const std::int64_t rows = params.query_rows + 2 * params.key_rows;
  const std::int64_t ctas = std::max((rows + kWarps - 1) / kWarps, std::int64_t{params.lengths != nullptr});
  if (ctas == 0 || p.before.batch == 0) return {};
  const AppendConfig config = append_config(p);
  return site.launch(
      bytes_of(config), [&] { return append_request(config, site.gpu().arch()); }, {ctas, 1, kWarps * 32, 0}, params);
}

Status queue_merge(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                   const Tensor& lse, int device, void* stream) {
  if (o_parts.size() > kMaxMergeParts)
    return unsupported("o_parts: {} parts, expected at most {} in device memory", o_parts.size(), kMaxMergeParts);
  for (const auto& tensors : {o_parts, lse_parts, std::span(&o, 1), std::span(&lse, 1)})
    for (const Tensor& tensor : tensors)
      if (tensor.dtype == DType::f64) return unsupported("device: {}, expected host memory for f64", device);
  LaunchSite site(driver_in_use().driver, stream);
  ONCHIP_RETURN_IF_ERROR(open_site(site, device));
  MergeParams params{};
  for (std::size_t i = 0; i < o_parts.size(); ++i) params.parts[i] = merge_part(o_parts[i], lse_parts[i]);
  params.result = merge_part(o, lse);
  const bool packed = o.rank == 3;
  params.positions = o.shape[packed ? 0 : 1];
  params.heads = static_cast<std::int32_t>(o.shape[packed ? 1 : 2]);
  params.rows = (packed ? 1 : o.shape[0]) * params.positions * params.heads;
  params.num_parts = static_cast<std::int32_t>(o_parts.size());
  params.head_dim = static_cast<std::int32_t>(o.shape[o.rank - 1]);
  const std::int64_t ctas = (params.rows + kWarps - 1) / kWarps;
  if (ctas == 0) return {};
  if (ctas > std::numeric_limits<std::int32_t>::max())
    return unsupported("o: {} rows, expected fewer than 2^33", params.rows);
  return site.launch(
      "merge parts", [&] { return merge_request(site.gpu().arch()); }, {ctas, 1, kWarps * 32, 0}, params);
}

}  // namespace onchip::cuda
