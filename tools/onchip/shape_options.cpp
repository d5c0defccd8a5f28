#include "onchip/shape_options.hpp"

#include <limits>
#include <numeric>

#include "onchip/attention_options.hpp"
#include "onchip/input_error.hpp"

namespace onchip::cli {
namespace {

constexpr std::int64_t kLargestSize = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLargestIndexTensor = std::int64_t{1} << 28;

void check_size(const char* option, std::int64_t value) {
  if (value < 0 || value > kLargestSize) refuse("{}: {}, expected 0 to {}", option, value, kLargestSize);
}

std::vector<std::int32_t> equal_lengths(const char* option, std::int64_t batch, std::int64_t length) {
  if (batch * length > kLargestSize || batch > kLargestIndexTensor)
    refuse("{}: {} packed sequences of {}, expected at most {} rows in all", option, batch, length, kLargestSize);
  std::vector<std::int32_t> ends(static_cast<std::size_t>(batch) + 1);
  for (std::int64_t b = 0; b <= batch; ++b) ends[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(b * length);
  return ends;
}

void set_keys(const Shape& s, ShapedProblem& p) {
  Attention& a = p.attention;
  const auto tensor = [&](std::int64_t last) {
    const void* none = nullptr;
    if (s.page_size > 0) {
      const std::int64_t pages = (s.seqlen_k + s.page_size - 1) / s.page_size;
      return contiguous(none, s.kv_dtype, {s.batch * pages, s.page_size, s.kv_heads, last});
    }
    if (s.packed) return contiguous(none, s.kv_dtype, {s.batch * s.seqlen_k, s.kv_heads, last});
    return contiguous(none, s.kv_dtype, {s.batch, s.seqlen_k, s.kv_heads, last});
  };
  a.k = tensor(s.head_dim);
  a.v = tensor(s.head_dim_v);
  if (s.page_size > 0) {
    const std::int64_t pages = (s.seqlen_k + s.page_size - 1) / s.page_size;
    if (s.batch * pages > kLargestIndexTensor)
      refuse("--page-size: {} pages, expected at most {}", s.batch * pages, kLargestIndexTensor);
    p.page_table.resize(static_cast<std::size_t>(s.batch * pages));
    std::iota(p.page_table.begin(), p.page_table.end(), 0);
    a.page_table = contiguous(p.page_table.data(), DType::i32, {s.batch, pages});
  } else if (s.packed) {
    p.cu_seqlens_k = equal_lengths("--seqlen-k", s.batch, s.seqlen_k);
    a.cu_seqlens_k = contiguous(p.cu_seqlens_k.data(), DType::i32, {s.batch + 1});
  }
  if (s.kv_dtype != s.dtype) {  // the library asks for scales exactly where the types differ
    const void* none = nullptr;
    a.k_scale = a.v_scale = contiguous(none, DType::f32, {s.kv_heads});
  }
}

void set_score_terms(const Shape& s, Attention& a) {
  const void* none = nullptr;
  if (s.bias) a.bias = contiguous(none, DType::f32, {1, s.heads, s.seqlen_q, s.seqlen_k});
  if (s.mask) a.mask = contiguous(none, DType::boolean, {s.batch, 1, s.seqlen_q, s.seqlen_k});
  if (s.alibi) a.alibi_slopes = contiguous(none, DType::f32, {s.heads});
  if (s.sink) a.sink = contiguous(none, DType::f32, {s.heads});
}

}  // namespace

Shape resolved(Shape s) {
  if (s.seqlen_k < 0) s.seqlen_k = s.seqlen_q;
  if (s.kv_heads < 0) s.kv_heads = s.heads;
  if (s.head_dim_v < 0) s.head_dim_v = s.head_dim;
  check_size("--batch", s.batch);
  check_size("--seqlen-q", s.seqlen_q);
  check_size("--seqlen-k", s.seqlen_k);
  check_size("--heads", s.heads);
  check_size("--kv-heads", s.kv_heads);
  check_size("--head-dim", s.head_dim);
  check_size("--head-dim-v", s.head_dim_v);
  check_size("--page-size", s.page_size);
  return s;
}

ShapedProblem make_shaped_problem(const Shape& shape) {
  const Shape s = resolved(shape);
  ShapedProblem p;
  const void* none = nullptr;
  if (s.packed) {
    p.cu_seqlens_q = equal_lengths("--seqlen-q", s.batch, s.seqlen_q);
    p.attention.cu_seqlens_q = contiguous(p.cu_seqlens_q.data(), DType::i32, {s.batch + 1});
    p.attention.q = contiguous(none, s.dtype, {s.batch * s.seqlen_q, s.heads, s.head_dim});
  } else {
    p.attention.q = contiguous(none, s.dtype, {s.batch, s.seqlen_q, s.heads, s.head_dim});
  }
  set_keys(s, p);
  set_score_terms(s, p.attention);
  return p;
}

void ShapeOptions::add(CLI::App& command) {
  const auto keep = [&](CLI::Option* option) {
    option->group("The shape");
    options_.push_back(option);
  };
  const auto size = [&](const char* option, std::int64_t& value, const char* help) {
    keep(command.add_option(option, value, help)->type_name("N"));
  };
  size("--batch", shape.batch, "Sequences (default 1)");
  size("--seqlen-q", shape.seqlen_q, "Queries of each sequence (default 1024)");
  size("--seqlen-k", shape.seqlen_k, "Keys of each sequence (default: as --seqlen-q)");
  size("--heads", shape.heads, "Query heads (default 8)");
  size("--kv-heads", shape.kv_heads, "Key and value heads, a divisor of --heads (default: as --heads)");
  size("--head-dim", shape.head_dim, "Elements of a query or key (default 64)");
  size("--head-dim-v", shape.head_dim_v, "Elements of a value (default: as --head-dim)");
  size("--page-size", shape.page_size, "Keys of a page of the KV cache (default 0: not paged)");
  keep(command.add_flag("--packed", shape.packed, "Sequences lie one after another without padding (cu_seqlens)"));
  keep(command.add_option("--dtype", dtype, "Type of q: f64, f32, bf16, f16 or e4m3")
           ->capture_default_str()
           ->type_name("TYPE"));
  keep(command.add_option("--kv-dtype", kv_dtype, "Type of k and v: as q, or i8, e4m3, e5m2 (default: as --dtype)")
           ->type_name("TYPE"));
  keep(command.add_option("--with", with, "Optional tensors that take part: bias, mask, alibi, sink")
           ->allow_extra_args(false)
           ->type_name("NAME,…"));
}

std::string ShapeOptions::first_given() const {
  for (const CLI::Option* option : options_)
    if (option->count() > 0) return option->get_name();
  return "";
}

ShapedProblem ShapeOptions::problem() const {
  Shape s = shape;
  s.dtype = parse_dtype("--dtype", dtype);
  s.kv_dtype = kv_dtype.empty() ? s.dtype : parse_dtype("--kv-dtype", kv_dtype);
  for (const std::string& name : split_list("--with", with)) {
    if (name == "bias")
      s.bias = true;
    else if (name == "mask")
      s.mask = true;
    else if (name == "alibi")
      s.alibi = true;
    else if (name == "sink")
      s.sink = true;
    else
      refuse("--with: '{}', expected bias, mask, alibi or sink", name);
  }
  return make_shaped_problem(s);
}

}  // namespace onchip::cli
