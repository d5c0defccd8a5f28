#include "c_api/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace onchip::c_api {
namespace {

struct NamedTensor {
  const char* name;
  onchip_tensor onchip_attention::*from;
  Tensor Attention::*to;
};

constexpr NamedTensor kTensors[] = {
    {"q", &onchip_attention::q, &Attention::q},
    {"k", &onchip_attention::k, &Attention::k},
    {"v", &onchip_attention::v, &Attention::v},
    {"bias", &onchip_attention::bias, &Attention::bias},
    {"mask", &onchip_attention::mask, &Attention::mask},
    {"alibi_slopes", &onchip_attention::alibi_slopes, &Attention::alibi_slopes},
    {"sink", &onchip_attention::sink, &Attention::sink},
    {"cu_seqlens_q", &onchip_attention::cu_seqlens_q, &Attention::cu_seqlens_q},
    {"cu_seqlens_k", &onchip_attention::cu_seqlens_k, &Attention::cu_seqlens_k},
    {"seqused_k", &onchip_attention::seqused_k, &Attention::seqused_k},
    {"page_table", &onchip_attention::page_table, &Attention::page_table},
    {"k_scale", &onchip_attention::k_scale, &Attention::k_scale},
    {"v_scale", &onchip_attention::v_scale, &Attention::v_scale},
    {"o", &onchip_attention::o, &Attention::o},
    {"lse", &onchip_attention::lse, &Attention::lse},
    {"dout", &onchip_attention::dout, &Attention::dout},
    {"dq", &onchip_attention::dq, &Attention::dq},
    {"dk", &onchip_attention::dk, &Attention::dk},
    {"dv", &onchip_attention::dv, &Attention::dv},
    {"dbias", &onchip_attention::dbias, &Attention::dbias},
    {"dsink", &onchip_attention::dsink, &Attention::dsink},
};

/// A number that stands for an enumerator, `last` being the largest.
template <typename Enum>
Enum enumerator(const char* name, std::int32_t value, Enum last, const char* list) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    fail(StatusCode::invalid_argument, fmt::format("{}: {}, expected one of {}", name, value, list));
  return static_cast<Enum>(value);
}

bool flag(const char* name, std::int32_t value) {
  if (value != 0 && value != 1) fail(StatusCode::invalid_argument, fmt::format("{}: {}, expected 0 or 1", name, value));
  return value == 1;
}

void check_size(const char* name, std::size_t got, std::size_t expected, const char* init) {
  if (got != expected)
    fail(StatusCode::invalid_argument,
         fmt::format("{}: struct_size {}, expected {}: begin with {}", name, got, expected, init));
}

void check_reserved(const char* name, std::int32_t value) {
  if (value != 0) fail(StatusCode::invalid_argument, fmt::format("{}.reserved: {}, expected 0", name, value));
}

}  // namespace

void fail(StatusCode code, const std::string& message) { throw Error(code, message); }

void require(const char* name, const void* pointer) {
  if (pointer == nullptr) fail(StatusCode::invalid_argument, fmt::format("{}: NULL, expected its address", name));
}

Tensor tensor_from(const char* name, const onchip_tensor& from) {
  if (from.rank < 0 || from.rank > 4)
    fail(StatusCode::invalid_argument, fmt::format("{}: rank {}, expected 0 (absent) to 4", name, from.rank));
  if (from.rank == 0) return {};
  Tensor to;
  to.data = from.data;
  to.dtype = enumerator(fmt::format("{}.dtype", name).c_str(), from.dtype, DType::boolean, "ONCHIP_F64 to ONCHIP_BOOL");
  to.rank = from.rank;
  std::copy(std::begin(from.shape), std::end(from.shape), to.shape.begin());
  std::copy(std::begin(from.stride), std::end(from.stride), to.stride.begin());
  return to;
}

Attention attention_from(const onchip_attention* from) {
  require("attention", from);
  check_size("attention", from->struct_size, sizeof(onchip_attention), "onchip_attention_init()");
  Attention to;
  for (const NamedTensor& tensor : kTensors) to.*tensor.to = tensor_from(tensor.name, from->*tensor.from);
  if (flag("has_softmax_scale", from->has_softmax_scale)) to.softmax_scale = from->softmax_scale;
  to.softcap = from->softcap;
  to.causal = flag("causal", from->causal);
  to.window_left = from->window_left;
  to.window_right = from->window_right;
  to.alignment =
      enumerator("alignment", from->alignment, Alignment::top_left, "ONCHIP_BOTTOM_RIGHT and ONCHIP_TOP_LEFT");
  to.backend = enumerator("backend", from->backend, Backend::cuda, "ONCHIP_BACKEND_AUTO to ONCHIP_BACKEND_CUDA");
  if (from->at_least != nullptr) to.at_least = from->at_least;
  to.num_threads = from->num_threads;
  to.allow_tf32 = flag("allow_tf32", from->allow_tf32);
  to.device = from->device;
  to.batch_invariant = flag("batch_invariant", from->batch_invariant);
  to.stream = from->stream;
  to.max_seqlen_q = from->max_seqlen_q;
  to.max_seqlen_k = from->max_seqlen_k;
  return to;
}

Decode decode_from(const onchip_decode_step* from) {
  require("step", from);
  check_size("step", from->struct_size, sizeof(onchip_decode_step), "onchip_decode_step_init()");
  check_reserved("step", from->reserved);
  Decode to;
  to.attention = attention_from(from->attention);
  to.k_new = tensor_from("k_new", from->k_new);
  to.v_new = tensor_from("v_new", from->v_new);
  to.rotary.cos = tensor_from("rotary_cos", from->rotary_cos);
  to.rotary.sin = tensor_from("rotary_sin", from->rotary_sin);
  to.rotary.interleaved = flag("rotary_interleaved", from->rotary_interleaved);
  return to;
}

Pass pass_from(std::int32_t pass) {
  return enumerator("pass", pass, Pass::backward, "ONCHIP_PASS_FORWARD and ONCHIP_PASS_BACKWARD");
}

void check_info(const onchip_plan_info* info) {
  if (info != nullptr) check_size("info", info->struct_size, sizeof(onchip_plan_info), "onchip_plan_info_init()");
}

void fill(onchip_plan_info* info, const Plan& plan) {
  if (info == nullptr) return;
  *info = {};
  info->struct_size = sizeof(onchip_plan_info);
  info->workspace_bytes = plan.workspace_bytes;
  const std::size_t length = std::min(plan.implementation.size(), sizeof info->implementation - 1);
  std::memcpy(info->implementation, plan.implementation.data(), length);
  info->pass = static_cast<std::int32_t>(plan.pass);
  info->backend = static_cast<std::int32_t>(plan.backend);
  info->num_threads = plan.num_threads;
  info->num_rejections = static_cast<std::int32_t>(plan.rejections.size());
  info->tile_m = plan.tile.tile_m;
  info->tile_n = plan.tile.tile_n;
  info->num_splits = plan.tile.num_splits;
  info->split_size = plan.tile.split_size;
  info->flops = plan.predicted.flops;
  info->main_memory_read_bytes = plan.predicted.main_memory_read_bytes;
  info->main_memory_write_bytes = plan.predicted.main_memory_write_bytes;
}

}  // namespace onchip::c_api
