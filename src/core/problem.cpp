#include "core/problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "core/normalise.hpp"
#include "core/threads.hpp"

namespace onchip {
namespace {

constexpr std::int64_t kNoBoundNeeded = std::int64_t{1}
                                        << 60;  // a wider window is no bound; sums with it cannot overflow

constexpr std::int64_t kMostSequences = std::numeric_limits<std::int32_t>::max();  // loops over them must end

bool is_float_input(DType t) {
  return t == DType::f64 || t == DType::f32 || t == DType::bf16 || t == DType::f16 || t == DType::e4m3;
}

bool is_quantised(DType t) { return t == DType::i8 || t == DType::e4m3 || t == DType::e5m2; }

DType output_type(DType input) { return input == DType::e4m3 ? DType::bf16 : input; }

DType statistics_type(DType input) { return input == DType::f64 ? DType::f64 : DType::f32; }

Status check_options(const Attention& a) {
  if (a.softmax_scale && !std::isfinite(*a.softmax_scale))
    return invalid("softmax_scale: expected a finite number, got {}", *a.softmax_scale);
  if (!std::isfinite(a.softcap) || a.softcap < 0)
    return invalid("softcap: expected 0 (none) or a positive finite number, got {}", a.softcap);
  if (a.window_left < -1) return invalid("window_left: expected −1 (no bound) or more, got {}", a.window_left);
  if (a.window_right < -1) return invalid("window_right: expected −1 (no bound) or more, got {}", a.window_right);
  if (a.device < -1) return invalid("device: expected −1 (host memory) or a CUDA device, got {}", a.device);
  if (a.num_threads < 0) return invalid("num_threads: expected 0 (all) or more, got {}", a.num_threads);
  return {};
}

Status read_query_shape(const Attention& a, Problem& p) {
  if (!a.q.present()) return invalid("q: missing, expected [B, Sq, Hq, D] or packed [total_q, Hq, D]");
  if (!is_float_input(a.q.dtype)) return invalid("q: type {}, expected f64, f32, bf16, f16 or e4m3", name(a.q.dtype));
  p.layout_q = a.cu_seqlens_q.present() ? Layout::packed : Layout::batched;
  if (p.layout_q == Layout::packed)
    ONCHIP_RETURN_IF_ERROR(check_rank("q", a.q, 3, "[total_q, Hq, D], packed because cu_seqlens_q is given"));
  else
    ONCHIP_RETURN_IF_ERROR(check_rank("q", a.q, 4, "[B, Sq, Hq, D] (or packed with cu_seqlens_q)"));
  ONCHIP_RETURN_IF_ERROR(check_view("q", a.q));
  p.num_heads_q = a.q.shape[a.q.rank - 2];
  p.head_dim = a.q.shape[a.q.rank - 1];
  if (p.num_heads_q < 1) return invalid("q: {} heads, expected at least 1", p.num_heads_q);
  if (p.head_dim < 1) return invalid("q: head dimension {}, expected at least 1", p.head_dim);
  return {};
}

Status read_key_layout(const Attention& a, Problem& p) {
  if (!a.k.present())
    return invalid("k: missing, expected [B, Sk, Hk, D], packed [total_k, Hk, D] or paged [pages, page_size, Hk, D]");
  if (!a.v.present()) return invalid("v: missing, expected the shape of k with last dimension Dv");
  if (a.page_table.present() && a.cu_seqlens_k.present())
    return invalid("page_table: given together with cu_seqlens_k, expected keys that are paged or packed, not both");
  p.layout_k = a.page_table.present() ? Layout::paged : a.cu_seqlens_k.present() ? Layout::packed : Layout::batched;
  if (p.layout_k == Layout::packed)
    ONCHIP_RETURN_IF_ERROR(check_rank("k", a.k, 3, "[total_k, Hk, D], packed because cu_seqlens_k is given"));
  else if (p.layout_k == Layout::paged)
    ONCHIP_RETURN_IF_ERROR(check_rank("k", a.k, 4, "[pages, page_size, Hk, D], paged because page_table is given"));
  else
    ONCHIP_RETURN_IF_ERROR(
        check_rank("k", a.k, 4, "[B, Sk, Hk, D] (or packed with cu_seqlens_k, paged with page_table)"));
  ONCHIP_RETURN_IF_ERROR(check_rank("v", a.v, a.k.rank, "the rank of k"));
  ONCHIP_RETURN_IF_ERROR(check_view("k", a.k));
  return check_view("v", a.v);
}

Status read_key_shape(const Attention& a, Problem& p) {
  ONCHIP_RETURN_IF_ERROR(read_key_layout(a, p));
  for (int d = 0; d + 1 < a.k.rank; ++d)
    if (a.k.shape[d] != a.v.shape[d])
      return invalid("v: shape {}, expected {} with any last dimension, as k", shape_text(a.v), shape_text(a.k));
  p.num_heads_kv = a.k.shape[a.k.rank - 2];
  p.head_dim_v = a.v.shape[a.v.rank - 1];
  if (p.num_heads_kv < 1) return invalid("k: {} heads, expected at least 1", p.num_heads_kv);
  if (p.head_dim_v < 1) return invalid("v: head dimension {}, expected at least 1", p.head_dim_v);
  if (a.k.shape[a.k.rank - 1] != p.head_dim)
    return invalid("k: shape {}, expected last dimension {} as q has", shape_text(a.k), p.head_dim);
  if (p.num_heads_q % p.num_heads_kv != 0)
    return invalid("q: {} heads, expected a multiple of the {} heads of k", p.num_heads_q, p.num_heads_kv);
  if (a.k.dtype != a.q.dtype && !is_quantised(a.k.dtype))
    return invalid("k: type {}, expected {} as q has, or i8, e4m3 or e5m2", name(a.k.dtype), name(a.q.dtype));
  if (a.v.dtype != a.k.dtype) return invalid("v: type {}, expected {} as k has", name(a.v.dtype), name(a.k.dtype));
  p.page_size = p.layout_k == Layout::paged ? a.k.shape[1] : 0;
  if (p.layout_k == Layout::paged && p.page_size < 1)
    return invalid("k: page size {}, expected at least 1", p.page_size);
  return {};
}

Status check_cu_seqlens(const char* name, const Tensor& cu, const char* total_of, std::int64_t total, const Problem& p,
                        Use use) {
  ONCHIP_RETURN_IF_ERROR(check_rank(name, cu, 1, "[B+1]"));
  ONCHIP_RETURN_IF_ERROR(check_type(name, cu, DType::i32));
  ONCHIP_RETURN_IF_ERROR(check_view(name, cu));
  if (cu.shape[0] < 1) return invalid("{}: shape [0], expected [B+1]", name);
  ONCHIP_RETURN_IF_ERROR(check_data(name, cu, use));
  const std::int32_t* values = p.host_values(cu);
  if (values == nullptr) return {};
  if (values[0] != 0) return invalid("{}: begins with {}, expected 0", name, values[0]);
  for (std::int64_t b = 1; b < cu.shape[0]; ++b)
    if (values[b] < values[b - 1])
      return invalid("{}: decreases from {} to {} at index {}, expected lengths of 0 or more", name, values[b - 1],
                     values[b], b);
  if (values[cu.shape[0] - 1] != total)
    return invalid("{}: ends with {}, expected {}, the first dimension of {}", name, values[cu.shape[0] - 1], total,
                   total_of);
  return {};
}

Status read_batch(const Attention& a, Use use, Problem& p) {
  if (p.layout_q == Layout::packed) {
    ONCHIP_RETURN_IF_ERROR(check_cu_seqlens("cu_seqlens_q", a.cu_seqlens_q, "q", a.q.shape[0], p, use));
    p.batch = a.cu_seqlens_q.shape[0] - 1;
  } else {
    p.batch = a.q.shape[0];
  }
  if (p.batch > kMostSequences)
    return invalid("{}: {} sequences, expected at most {}", p.layout_q == Layout::packed ? "cu_seqlens_q" : "q",
                   p.batch, kMostSequences);
  std::int64_t batch_k = a.k.shape[0];
  const char* batch_of = "k";
  if (p.layout_k == Layout::packed) {
    ONCHIP_RETURN_IF_ERROR(check_cu_seqlens("cu_seqlens_k", a.cu_seqlens_k, "k", a.k.shape[0], p, use));
    batch_k = a.cu_seqlens_k.shape[0] - 1;
    batch_of = "cu_seqlens_k";
  } else if (p.layout_k == Layout::paged) {
    ONCHIP_RETURN_IF_ERROR(check_rank("page_table", a.page_table, 2, "[B, max_pages]"));
    ONCHIP_RETURN_IF_ERROR(check_type("page_table", a.page_table, DType::i32));
    ONCHIP_RETURN_IF_ERROR(check_view("page_table", a.page_table));
    ONCHIP_RETURN_IF_ERROR(check_data("page_table", a.page_table, use));
    batch_k = a.page_table.shape[0];
    batch_of = "page_table";
  }
  if (batch_k != p.batch) return invalid("{}: {} sequences, expected {} as q has", batch_of, batch_k, p.batch);
  return {};
}

Status check_seqused(const Problem& p, Use use) {
  const Tensor& used = p.args.seqused_k;
  if (!used.present()) return {};
  ONCHIP_RETURN_IF_ERROR(check_shape("seqused_k", used, {p.batch}, "[B]"));
  ONCHIP_RETURN_IF_ERROR(check_type("seqused_k", used, DType::i32));
  ONCHIP_RETURN_IF_ERROR(check_view("seqused_k", used));
  ONCHIP_RETURN_IF_ERROR(check_data("seqused_k", used, use));
  const std::int32_t* values = p.host_values(used);
  if (values == nullptr) return {};
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::int32_t value = values[b];
    if (value < 0 || value > p.capacity(b))
      return invalid("seqused_k: {} at index {}, expected 0 to {}, the keys that the sequence can hold", value, b,
                     p.capacity(b));
  }
  return {};
}

Status check_pages(const Problem& p) {
  const Tensor& table = p.args.page_table;
  const std::int32_t* pages = p.host_values(table);
  if (p.layout_k != Layout::paged || pages == nullptr) return {};
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::int64_t used = (p.sequence(b).seqlen_k + p.page_size - 1) / p.page_size;
    for (std::int64_t i = 0; i < used; ++i) {
      const std::int32_t page = pages[b * table.stride[0] + i * table.stride[1]];
      if (page < 0 || page >= p.args.k.shape[0])
        return invalid("page_table: page {} at [{}, {}], expected 0 to {}, the pages of k", page, b, i,
                       p.args.k.shape[0] - 1);
    }
  }
  return {};
}

void read_longest(Problem& p) {
  p.max_seqlen_q = p.max_seqlen_k = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const Sequence sequence = p.sequence(b);
    p.max_seqlen_q = std::max(p.max_seqlen_q, sequence.seqlen_q);
    p.max_seqlen_k = std::max(p.max_seqlen_k, sequence.seqlen_k);
  }
}

/// Lengths in device memory are not looked at: there the caller may say how long the longest is.
Status read_length_hint(const char* name, std::int64_t hint, const Problem& p, std::int64_t& longest) {
  if (hint < 0) return invalid("{}: {}, expected 0 (unknown) or more", name, hint);
  if (p.args.device >= 0 && hint > 0) longest = std::min(longest, hint);
  return {};
}

/// bias, mask and dbias: [1|B, 1|Hq, Sq, Sk]; with packed or paged sequences at least the longest lengths.
Status check_score_tensor(const char* name, const Tensor& t, const Problem& p, Use use) {
  ONCHIP_RETURN_IF_ERROR(check_rank(name, t, 4, "[1 or B, 1 or Hq, Sq, Sk]"));
  ONCHIP_RETURN_IF_ERROR(check_view(name, t));
  const bool exact_q = p.layout_q == Layout::batched;
  const bool exact_k = p.layout_k == Layout::batched;
  const std::int64_t seqlen_k = exact_k ? p.args.k.shape[1] : p.max_seqlen_k;
  const bool batch_fits = t.shape[0] == 1 || t.shape[0] == p.batch;
  const bool head_fits = t.shape[1] == 1 || t.shape[1] == p.num_heads_q;
  const bool q_fits = exact_q ? t.shape[2] == p.max_seqlen_q || p.batch == 0 : t.shape[2] >= p.max_seqlen_q;
  const bool k_fits = exact_k ? t.shape[3] == seqlen_k : t.shape[3] >= seqlen_k;
  if (!batch_fits || !head_fits || !q_fits || !k_fits)
    return invalid("{}: shape {}, expected [1 or {}, 1 or {}, {}{}, {}{}]", name, shape_text(t), p.batch, p.num_heads_q,
                   exact_q ? "" : "at least ", p.max_seqlen_q, exact_k ? "" : "at least ", seqlen_k);
  return check_data(name, t, use);
}

Status check_score_terms(const Problem& p, Use use) {
  const Attention& a = p.args;
  if (a.bias.present()) {
    const DType t = a.bias.dtype;
    const bool f64 = p.dtype() == DType::f64 && t == DType::f64;
    if (t != DType::f32 && t != DType::bf16 && t != DType::f16 && !f64)
      return invalid("bias: type {}, expected f32, bf16 or f16 (or f64 where q is f64)", name(t));
    ONCHIP_RETURN_IF_ERROR(check_score_tensor("bias", a.bias, p, use));
  }
  if (a.mask.present()) {
    ONCHIP_RETURN_IF_ERROR(check_type("mask", a.mask, DType::boolean));
    ONCHIP_RETURN_IF_ERROR(check_score_tensor("mask", a.mask, p, use));
  }
  if (a.alibi_slopes.present()) {
    ONCHIP_RETURN_IF_ERROR(check_type("alibi_slopes", a.alibi_slopes, DType::f32));
    if (a.alibi_slopes.rank == 1)
      ONCHIP_RETURN_IF_ERROR(check_shape("alibi_slopes", a.alibi_slopes, {p.num_heads_q}, "[Hq] or [B, Hq]"));
    else
      ONCHIP_RETURN_IF_ERROR(check_shape("alibi_slopes", a.alibi_slopes, {p.batch, p.num_heads_q}, "[Hq] or [B, Hq]"));
    ONCHIP_RETURN_IF_ERROR(check_view("alibi_slopes", a.alibi_slopes));
    ONCHIP_RETURN_IF_ERROR(check_data("alibi_slopes", a.alibi_slopes, use));
  }
  if (a.sink.present()) {
    ONCHIP_RETURN_IF_ERROR(check_type("sink", a.sink, DType::f32));
    ONCHIP_RETURN_IF_ERROR(check_shape("sink", a.sink, {p.num_heads_q}, "[Hq]"));
    ONCHIP_RETURN_IF_ERROR(check_view("sink", a.sink));
    ONCHIP_RETURN_IF_ERROR(check_data("sink", a.sink, use));
  }
  return {};
}

bool has_token_shape(const Tensor& scale, const Tensor& rows) {
  if (scale.rank != rows.rank - 1) return false;
  for (int d = 0; d < scale.rank; ++d)
    if (scale.shape[d] != rows.shape[d]) return false;
  return true;
}

/// A shape that fits both per token and [B, Hk] (packed keys, as many tokens as sequences) is per token.
Status read_scale(const char* name, const Tensor& scale, const Tensor& rows, const Problem& p, Use use,
                  ScaleGranularity& kind) {
  kind = ScaleGranularity::none;
  if (!scale.present()) {
    if (is_quantised(rows.dtype) && rows.dtype != p.dtype())
      return invalid("{}: missing, expected a scale for keys and values of type {}", name, onchip::name(rows.dtype));
    return {};
  }
  if (!is_quantised(rows.dtype))
    return invalid("{}: given for keys and values of type {}, expected i8, e4m3 or e5m2", name,
                   onchip::name(rows.dtype));
  ONCHIP_RETURN_IF_ERROR(check_type(name, scale, DType::f32));
  if (has_token_shape(scale, rows))
    kind = ScaleGranularity::token;
  else if (scale.rank == 1 && scale.shape[0] == 1)
    kind = ScaleGranularity::tensor;
  else if (scale.rank == 1 && scale.shape[0] == p.num_heads_kv)
    kind = ScaleGranularity::head;
  else if (scale.rank == 2 && scale.shape[0] == p.batch && scale.shape[1] == p.num_heads_kv)
    kind = ScaleGranularity::batch_head;
  else
    return invalid("{}: shape {}, expected [1], [{}], [{}, {}] or one per token, k's shape without the last dimension",
                   name, shape_text(scale), p.num_heads_kv, p.batch, p.num_heads_kv);
  if (kind != ScaleGranularity::token) ONCHIP_RETURN_IF_ERROR(check_view(name, scale));
  ONCHIP_RETURN_IF_ERROR(check_overflow(name, scale));
  return check_data(name, scale, use);
}

Status check_like(const char* name, const Tensor& t, const Tensor& like, std::int64_t last, DType type) {
  ONCHIP_RETURN_IF_ERROR(check_type(name, t, type));
  bool same = t.rank == like.rank;
  for (int d = 0; same && d < t.rank; ++d) same = t.shape[d] == (d + 1 == t.rank ? last : like.shape[d]);
  if (!same) {
    Tensor wanted = like;
    wanted.shape[wanted.rank - 1] = last;
    return invalid("{}: shape {}, expected {}", name, shape_text(t), shape_text(wanted));
  }
  return check_view(name, t);
}

Status check_lse(const Problem& p, Use use) {
  const Tensor& lse = p.args.lse;
  ONCHIP_RETURN_IF_ERROR(check_type("lse", lse, statistics_type(p.dtype())));
  if (p.layout_q == Layout::packed)
    ONCHIP_RETURN_IF_ERROR(check_shape("lse", lse, {p.num_heads_q, p.args.q.shape[0]}, "[Hq, total_q]"));
  else
    ONCHIP_RETURN_IF_ERROR(check_shape("lse", lse, {p.batch, p.num_heads_q, p.args.q.shape[1]}, "[B, Hq, Sq]"));
  ONCHIP_RETURN_IF_ERROR(check_overflow("lse", lse));
  return check_data("lse", lse, use);
}

Status check_forward_results(const Problem& p, Use use) {
  const Attention& a = p.args;
  if (use == Use::run && !a.o.present())
    return invalid("o: missing, expected {}",
                   p.pass == Pass::forward ? "a tensor to write the output to" : "the forward pass's output");
  if (a.o.present()) {
    ONCHIP_RETURN_IF_ERROR(check_like("o", a.o, a.q, p.head_dim_v, output_type(p.dtype())));
    ONCHIP_RETURN_IF_ERROR(check_data("o", a.o, use));
  }
  if (a.lse.present()) ONCHIP_RETURN_IF_ERROR(check_lse(p, use));
  if (p.pass == Pass::backward) return {};
  if (a.o.present()) ONCHIP_RETURN_IF_ERROR(check_writable("o", a.o));
  if (a.lse.present()) ONCHIP_RETURN_IF_ERROR(check_writable("lse", a.lse));
  return check_apart({{"o", a.o}, {"lse", a.lse}});
}

Status check_gradient(const char* name, const Tensor& gradient, const char* of, const Tensor& input, Use use) {
  if (!gradient.present()) return {};
  if (!input.present()) return invalid("{}: given without {}, expected both", name, of);
  ONCHIP_RETURN_IF_ERROR(check_like(name, gradient, input, input.shape[input.rank - 1], input.dtype));
  ONCHIP_RETURN_IF_ERROR(check_writable(name, gradient));
  return check_data(name, gradient, use);
}

Status check_backward(const Problem& p, Use use) {
  const Attention& a = p.args;
  if (p.quantised_kv() || p.dtype() == DType::e4m3)
    return unsupported("k: type {}, the backward pass takes f64, f32, bf16 and f16", name(a.k.dtype));
  if (use == Use::run) {
    if (!a.lse.present()) return invalid("lse: missing, expected the forward pass's lse");
    if (!a.dout.present()) return invalid("dout: missing, expected the gradient of o");
    const bool any = a.dq.present() || a.dk.present() || a.dv.present() || a.dbias.present() || a.dsink.present();
    if (!any) return invalid("dq, dk, dv, dbias, dsink: all missing, expected at least one gradient to write");
  }
  if (a.dout.present()) {
    ONCHIP_RETURN_IF_ERROR(check_like("dout", a.dout, a.q, p.head_dim_v, p.dtype()));
    ONCHIP_RETURN_IF_ERROR(check_data("dout", a.dout, use));
  }
  ONCHIP_RETURN_IF_ERROR(check_gradient("dq", a.dq, "q", a.q, use));
  ONCHIP_RETURN_IF_ERROR(check_gradient("dk", a.dk, "k", a.k, use));
  ONCHIP_RETURN_IF_ERROR(check_gradient("dv", a.dv, "v", a.v, use));
  ONCHIP_RETURN_IF_ERROR(check_gradient("dbias", a.dbias, "bias", a.bias, use));
  ONCHIP_RETURN_IF_ERROR(check_gradient("dsink", a.dsink, "sink", a.sink, use));
  return check_apart({{"dq", a.dq}, {"dk", a.dk}, {"dv", a.dv}, {"dbias", a.dbias}, {"dsink", a.dsink}});
}

void resolve_options(const Attention& a, Problem& p) {
  p.softmax_scale = a.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(p.head_dim)));
  p.softcap = a.softcap;
  if (p.dtype() != DType::f64) {
    // Beyond what f32 statistics can hold a cap changes no score, and a scale leaves none.
    if (p.softcap > std::numeric_limits<float>::max()) p.softcap = 0.0;
    if (static_cast<float>(p.softmax_scale) == 0.0f) p.softmax_scale = 0.0;
  }
  p.window_left = a.window_left > kNoBoundNeeded ? -1 : a.window_left;
  p.window_right = a.causal ? 0 : a.window_right > kNoBoundNeeded ? -1 : a.window_right;
  p.num_threads = a.num_threads > 0 ? a.num_threads : available_threads();
}

}  // namespace

std::int64_t Problem::capacity(std::int64_t b) const {
  if (layout_k == Layout::paged) return args.page_table.shape[1] * page_size;
  if (layout_k == Layout::batched) return args.k.shape[1];
  const std::int32_t* cu = host_values(args.cu_seqlens_k);
  if (cu == nullptr) return args.k.shape[0];
  return cu[b + 1] - cu[b];
}

Sequence Problem::sequence(std::int64_t b) const {
  Sequence s{};
  s.batch = b;
  if (layout_q == Layout::batched) {
    s.seqlen_q = args.q.shape[1];
  } else if (const std::int32_t* cu = host_values(args.cu_seqlens_q); cu == nullptr) {
    s.seqlen_q = args.q.shape[0];
  } else {
    s.begin_q = cu[b];
    s.seqlen_q = cu[b + 1] - cu[b];
  }
  if (const std::int32_t* cu = host_values(args.cu_seqlens_k); layout_k == Layout::packed && cu != nullptr)
    s.begin_k = cu[b];
  s.seqlen_k = capacity(b);
  if (const std::int32_t* used = host_values(args.seqused_k); used != nullptr) s.seqlen_k = used[b];
  const std::int64_t shift = args.alignment == Alignment::top_left ? 0 : s.seqlen_k - s.seqlen_q;
  s.mask = {s.seqlen_k, shift, window_left, window_right};
  return s;
}

Status make_problem(const Attention& args, Pass pass, Use use, Problem& p) {
  p = Problem{};
  p.args = args;
  p.pass = pass;
  ONCHIP_RETURN_IF_ERROR(normalise(p.args));
  const Attention& a = p.args;
  ONCHIP_RETURN_IF_ERROR(check_options(a));
  ONCHIP_RETURN_IF_ERROR(read_query_shape(a, p));
  ONCHIP_RETURN_IF_ERROR(read_key_shape(a, p));
  ONCHIP_RETURN_IF_ERROR(read_batch(a, use, p));
  resolve_options(a, p);
  ONCHIP_RETURN_IF_ERROR(check_seqused(p, use));
  ONCHIP_RETURN_IF_ERROR(check_pages(p));
  read_longest(p);
  ONCHIP_RETURN_IF_ERROR(read_length_hint("max_seqlen_q", a.max_seqlen_q, p, p.max_seqlen_q));
  ONCHIP_RETURN_IF_ERROR(read_length_hint("max_seqlen_k", a.max_seqlen_k, p, p.max_seqlen_k));
  ONCHIP_RETURN_IF_ERROR(check_data("q", a.q, use));
  ONCHIP_RETURN_IF_ERROR(check_data("k", a.k, use));
  ONCHIP_RETURN_IF_ERROR(check_data("v", a.v, use));
  ONCHIP_RETURN_IF_ERROR(check_score_terms(p, use));
  ONCHIP_RETURN_IF_ERROR(read_scale("k_scale", a.k_scale, a.k, p, use, p.k_scale_kind));
  ONCHIP_RETURN_IF_ERROR(read_scale("v_scale", a.v_scale, a.v, p, use, p.v_scale_kind));
  ONCHIP_RETURN_IF_ERROR(check_forward_results(p, use));
  return pass == Pass::backward ? check_backward(p, use) : Status{};
}

}  // namespace onchip
