#include "cuda/host/portable_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace onchip::cuda {
namespace {

constexpr int kWidestCopy = 16;
constexpr int kStreamedChunk = 64;  // columns of q and k, when shared memory cannot hold all
constexpr int kWidestValues = 256;  // columns of o that a CTA keeps in registers
constexpr int kFewRows = 64;        // up to here one small tile does, and query heads share it
constexpr std::int64_t kMaxLength = std::numeric_limits<std::int32_t>::max() - 1024;
constexpr std::int64_t kMaxGridX = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxGridY = 65535;

Element element(DType type) {
  switch (type) {
    case DType::f32:
      return Element::f32;
    case DType::bf16:
      return Element::bf16;
    case DType::f16:
      return Element::f16;
    case DType::e4m3:
      return Element::e4m3;
    case DType::e5m2:
      return Element::e5m2;
    case DType::i8:
      return Element::i8;
    case DType::f64:
    case DType::i32:
    case DType::boolean:
      break;
  }
  return Element::none;
}

Math math(const Problem& p) {
  if (p.dtype() == DType::f32) return p.args.allow_tf32 ? Math::tf32 : Math::f32;
  return p.dtype() == DType::f16 ? Math::f16 : Math::bf16;
}

/// The largest power of two up to 16 that divides the address, every stride and the first `columns` columns of a row.
int copy_bytes(const Tensor& t, std::int64_t columns) {
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  std::uint64_t bits =
      kWidestCopy | reinterpret_cast<std::uintptr_t>(t.data) | static_cast<std::uint64_t>(columns * size);
  for (int d = 0; d + 1 < t.rank; ++d)
    if (t.shape[d] > 1) bits |= static_cast<std::uint64_t>(t.stride[d] * size);
  return 1 << std::countr_zero(bits);
}

/// The most rows that a sequence can have in tiles that its KV head's query heads share.
bool shares_tiles(const Problem& p) { return p.heads_per_kv() > 1 && p.max_seqlen_q * p.heads_per_kv() <= kFewRows; }

/// Tile sizes by what a thread's registers hold: rows · (keys + columns of o) / 32 numbers each of scores and output,
/// and room for the terms of general scores. A warp of 32 rows uses each operand fragment of k and v twice, so it comes
/// first.
void choose_tile(PortableConfig& c, const Problem& p) {
  const int wide = std::max(c.padded_head_dim(), c.padded_head_dim_v());
  const bool narrow_math = c.math == Math::bf16 || c.math == Math::f16;
  const bool plain = !c.general_scores() && !c.mask && !c.v_token_scale;
  const bool many_rows = p.max_seqlen_q * c.heads_per_tile > kFewRows;
  c.warps = 4;
  c.tile_m = many_rows && (wide <= 64 || (wide <= 128 && plain)) ? 128 : 64;
  if (wide > 256 || (wide > 128 && !plain))
    c.tile_n = 32;
  else if (narrow_math)
    c.tile_n = wide <= 64 && plain ? 128 : 64;
  else
    c.tile_n = c.math == Math::tf32 && wide <= 64 && plain ? 64 : 32;
  c.ctas_per_sm = wide <= 256 ? 2 : 1;
}

RowLayout row_layout(const Tensor& t, int batch, int row, int head) {
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  const auto bytes = [&](int d) { return d < 0 || t.shape[d] == 1 ? 0 : t.stride[d] * size; };
  return {bytes(batch), bytes(row), bytes(head)};
}

/// q, k, v, o and scales per token: [B, S, H, …], packed [total, H, …].
RowLayout token_layout(const Tensor& t, bool packed) {
  return packed ? row_layout(t, -1, 0, 1) : row_layout(t, 0, 1, 2);
}

RowLayout scale_layout(const Tensor& t, ScaleGranularity kind, bool packed) {
  switch (kind) {
    case ScaleGranularity::token:
      return token_layout(t, packed);
    case ScaleGranularity::batch_head:
      return row_layout(t, 0, -1, 1);
    case ScaleGranularity::head:
      return row_layout(t, -1, -1, 0);
    case ScaleGranularity::tensor:
    case ScaleGranularity::none:
      break;
  }
  return {0, 0, 0};
}

template <typename T>
const T* data(const Tensor& t) {
  return static_cast<const T*>(t.data);
}

void set_layouts(const Problem& p, PortableParams& x) {
  const Attention& a = p.args;
  const bool packed_q = p.layout_q == Layout::packed;
  const bool packed_k = p.layout_k == Layout::packed;
  x.q_layout = token_layout(a.q, packed_q);
  x.o_layout = token_layout(a.o, packed_q);
  x.k_layout = token_layout(a.k, packed_k);
  x.v_layout = token_layout(a.v, packed_k);
  x.lse_layout = packed_q ? row_layout(a.lse, -1, 1, 0) : row_layout(a.lse, 0, 2, 1);
  x.bias_layout = row_layout(a.bias, 0, 2, 1);
  x.mask_layout = row_layout(a.mask, 0, 2, 1);
  x.slope_layout =
      a.alibi_slopes.rank == 2 ? row_layout(a.alibi_slopes, 0, -1, 1) : row_layout(a.alibi_slopes, -1, -1, 0);
  x.sink_layout = row_layout(a.sink, -1, -1, 0);
  x.k_scale_layout = scale_layout(a.k_scale, p.k_scale_kind, packed_k);
  x.v_scale_layout = scale_layout(a.v_scale, p.v_scale_kind, packed_k);
  x.page_table_batch_stride = a.page_table.stride[0];
  x.page_table_page_stride = a.page_table.stride[1];
}

PortableParams pointers(const Attention& a) {
  PortableParams x{};
  x.q = data<char>(a.q);
  x.k = data<char>(a.k);
  x.v = data<char>(a.v);
  x.o = static_cast<char*>(a.o.data);
  x.lse = static_cast<char*>(a.lse.data);
  x.bias = data<char>(a.bias);
  x.mask = data<char>(a.mask);
  x.alibi_slopes = data<char>(a.alibi_slopes);
  x.sink = data<char>(a.sink);
  x.k_scale = data<char>(a.k_scale);
  x.v_scale = data<char>(a.v_scale);
  x.cu_seqlens_q = data<std::int32_t>(a.cu_seqlens_q);
  x.cu_seqlens_k = data<std::int32_t>(a.cu_seqlens_k);
  x.seqused_k = data<std::int32_t>(a.seqused_k);
  x.page_table = data<std::int32_t>(a.page_table);
  return x;
}

std::int64_t row_blocks(const Problem& p, const PortableConfig& c) {
  if (!c.packed_q) return (p.args.q.shape[1] * c.heads_per_tile + c.tile_m - 1) / c.tile_m;
  return p.args.q.shape[0] * c.heads_per_tile / c.tile_m + p.batch;
}

/// Head tiles (of one sequence each, unless packed) whose keys and values fit into half of L2; all groups about as
/// large, since the last one's tiles have nothing after them to hide behind.
std::int64_t l2_group(const Problem& p, const PortableConfig& c, std::int64_t columns, int l2_bytes) {
  const std::int64_t key_bytes = (p.head_dim + p.head_dim_v) * static_cast<std::int64_t>(size_of(p.args.k.dtype));
  const double head_bytes = std::max(1.0, static_cast<double>(key_bytes) * static_cast<double>(p.max_seqlen_k));
  const double kv_heads = std::clamp(std::floor(0.5 * l2_bytes / head_bytes), 1.0, static_cast<double>(kMaxLength));
  const auto most = static_cast<std::int64_t>(kv_heads) * (p.heads_per_kv() / c.heads_per_tile);
  const std::int64_t groups = std::max<std::int64_t>((columns + most - 1) / most, 1);
  return std::max<std::int64_t>((columns + groups - 1) / groups, 1);
}

}  // namespace

Status portable_target(const std::string& arch, PortableTarget& target) {
  struct Known {
    const char* arch;
    int shared_kib;
  };
  // CUDA C++ Programming Guide, technical specifications per compute capability: shared memory per block.
  constexpr Known kKnown[] = {{"sm_80", 163},   {"sm_86", 99},    {"sm_87", 163},   {"sm_89", 99},   {"sm_90a", 227},
                              {"sm_100a", 227}, {"sm_103a", 227}, {"sm_110a", 227}, {"sm_120a", 99}, {"sm_121a", 99}};
  std::string names;
  for (const Known& known : kKnown) {
    if (arch == known.arch) {
      target.shared_bytes_per_block = known.shared_kib * 1024;
      return {};
    }
    names += (names.empty() ? "" : ", ") + std::string(known.arch);
  }
  return invalid("arch: '{}', expected one of {}", arch, names);
}

PortableConfig portable_config(const Problem& p, const PortableTarget& target) {
  const Attention& a = p.args;
  PortableConfig c;
  c.q_type = element(a.q.dtype);
  c.kv_type = element(a.k.dtype);
  c.o_type = c.q_type == Element::e4m3 ? Element::bf16 : c.q_type;
  c.bias_type = a.bias.present() ? element(a.bias.dtype) : Element::none;
  c.math = math(p);
  c.head_dim = static_cast<int>(p.head_dim);
  c.head_dim_v = static_cast<int>(std::min<std::int64_t>(p.head_dim_v, kWidestValues));
  c.head_dim_chunk = c.padded_head_dim();
  c.heads_per_tile = shares_tiles(p) ? static_cast<int>(p.heads_per_kv()) : 1;
  c.q_copy_bytes = copy_bytes(a.q, p.head_dim);
  c.k_copy_bytes = copy_bytes(a.k, p.head_dim);
  c.v_copy_bytes = copy_bytes(a.v, p.head_dim_v);
  c.o_copy_bytes = copy_bytes(a.o, p.head_dim_v);
  c.packed_q = p.layout_q == Layout::packed;
  c.packed_k = p.layout_k == Layout::packed;
  c.paged = p.layout_k == Layout::paged;
  c.seqused_k = a.seqused_k.present();
  c.bounded = p.window_left >= 0 || p.window_right >= 0;
  c.general_scale = !(p.softmax_scale > 0);
  c.softcap = p.softcap > 0;
  c.alibi = a.alibi_slopes.present();
  c.mask = a.mask.present();
  c.k_scale = a.k_scale.present();
  c.k_token_scale = p.k_scale_kind == ScaleGranularity::token;
  c.v_token_scale = p.v_scale_kind == ScaleGranularity::token;
  choose_tile(c, p);
  if (c.shared_bytes() > target.shared_bytes_per_block) c.head_dim_chunk = kStreamedChunk;
  return c;
}

PortableLaunch portable_launch(const Problem& p, const PortableConfig& c, int l2_bytes) {
  PortableLaunch launch{pointers(p.args), 0, 0};
  PortableParams& x = launch.params;
  set_layouts(p, x);
  x.window_left = p.window_left;
  x.window_right = p.window_right;
  x.batch = static_cast<std::int32_t>(p.batch);
  x.num_heads_q = static_cast<std::int32_t>(p.num_heads_q);
  x.heads_per_kv = static_cast<std::int32_t>(p.heads_per_kv());
  x.seqlen_q = c.packed_q ? 0 : static_cast<std::int32_t>(p.args.q.shape[1]);
  x.seqlen_k = c.packed_k
                   ? 0
                   : static_cast<std::int32_t>(c.paged ? p.args.page_table.shape[1] * p.page_size : p.args.k.shape[1]);
  x.page_size = static_cast<std::int32_t>(p.page_size);
  x.head_dim_v = static_cast<std::int32_t>(p.head_dim_v);
  x.top_left = p.args.alignment == Alignment::top_left;
  x.scale_log2e = static_cast<float>(p.softmax_scale * std::numbers::log2e);
  x.softcap_log2e = static_cast<float>(p.softcap * std::numbers::log2e);

  const std::int64_t head_tiles = p.num_heads_q / c.heads_per_tile;
  const std::int64_t columns = c.packed_q ? head_tiles : head_tiles * p.batch;
  const std::int64_t m_blocks = row_blocks(p, c);
  x.m_blocks = static_cast<std::int32_t>(m_blocks);
  x.head_tiles = static_cast<std::int32_t>(head_tiles);
  x.l2_group = static_cast<std::int32_t>(l2_group(p, c, columns, l2_bytes));
  launch.grid_x = m_blocks * columns;
  launch.grid_y = (p.head_dim_v + c.head_dim_v - 1) / c.head_dim_v;
  return launch;
}

std::optional<std::string> portable_reject(const Problem& p) {
  if (p.dtype() == DType::f64) return "f64 is computed on the CPU";
  const std::int64_t rows = (p.layout_q == Layout::packed ? p.args.q.shape[0] : p.max_seqlen_q) * p.heads_per_kv();
  if (rows > kMaxLength || p.max_seqlen_k > kMaxLength || p.num_heads_q * p.batch > kMaxLength)
    return "a length of 2^31 or more";
  if (p.head_dim > 1 << 20 || p.head_dim_v > kMaxGridY * kWidestValues) return "a head dimension beyond 2^20";
  const bool packed = p.layout_q == Layout::packed;
  const double blocks = static_cast<double>(rows) / kFewRows + 1 + (packed ? static_cast<double>(p.batch) : 0);
  const double columns = static_cast<double>(p.num_heads_q) * (packed ? 1 : static_cast<double>(p.batch));
  if (blocks * columns > static_cast<double>(kMaxGridX)) return "more than 2^31 tiles of queries";
  return std::nullopt;
}

std::string portable_name(const PortableConfig& c) {
  static constexpr const char* kElements[] = {"none", "f32", "bf16", "f16", "e4m3", "e5m2", "i8"};
  const auto name = [](Element e) { return kElements[static_cast<int>(e)]; };
  std::string text = fmt::format("portable_forward_{}", name(c.q_type));
  if (c.math == Math::tf32) text += "_tf32";
  if (c.kv_type != c.q_type) text += fmt::format("_kv_{}", name(c.kv_type));
  text += fmt::format("_d{}", c.head_dim);
  if (c.head_dim_v != c.head_dim) text += fmt::format("_dv{}", c.head_dim_v);
  text += fmt::format("_m{}n{}w{}", c.tile_m, c.tile_n, c.warps);
  if (c.num_chunks() > 1) text += fmt::format("c{}", c.head_dim_chunk);
  if (c.heads_per_tile > 1) text += fmt::format("_h{}", c.heads_per_tile);
  const std::pair<bool, const char*> features[] = {{c.packed_q, "packedq"},
                                                   {c.packed_k, "packedk"},
                                                   {c.paged, "paged"},
                                                   {c.seqused_k, "used"},
                                                   {c.bounded, "bounded"},
                                                   {c.general_scale, "scale"},
                                                   {c.softcap, "softcap"},
                                                   {c.alibi, "alibi"},
                                                   {c.mask, "mask"},
                                                   {c.k_scale, c.k_token_scale ? "ktokens" : "kscale"},
                                                   {c.v_token_scale, "vtokens"}};
  for (const auto& [on, feature] : features)
    if (on) text += fmt::format("_{}", feature);
  if (c.bias_type != Element::none) text += fmt::format("_bias{}", name(c.bias_type));
  if (std::min({c.q_copy_bytes, c.k_copy_bytes, c.v_copy_bytes, c.o_copy_bytes}) < kWidestCopy)
    text += fmt::format("_a{}_{}_{}_{}", c.q_copy_bytes, c.k_copy_bytes, c.v_copy_bytes, c.o_copy_bytes);
  return text;
}

KernelRequest portable_request(const PortableConfig& c, const std::string& arch) {
  const auto enumerator = [](const char* type, auto value) {
    return fmt::format("static_cast<{}>({})", type, static_cast<int>(value));
  };
  const std::string config = fmt::format(
      "{{.q_type={},.kv_type={},.o_type={},.bias_type={},.math={},.head_dim={},.head_dim_v={},.head_dim_chunk={},"
      ".tile_m={},.tile_n={},.warps={},.ctas_per_sm={},.q_copy_bytes={},.k_copy_bytes={},.v_copy_bytes={},"
      ".o_copy_bytes={},.heads_per_tile={},.packed_q={},.packed_k={},.paged={},.seqused_k={},.bounded={},.general_"
      "scale={},"
      ".softcap={},.alibi={},.mask={},.k_scale={},.k_token_scale={},.v_token_scale={}}}",
      enumerator("Element", c.q_type), enumerator("Element", c.kv_type), enumerator("Element", c.o_type),
      enumerator("Element", c.bias_type), enumerator("Math", c.math), c.head_dim, c.head_dim_v, c.head_dim_chunk,
      c.tile_m, c.tile_n, c.warps, c.ctas_per_sm, c.q_copy_bytes, c.k_copy_bytes, c.v_copy_bytes, c.o_copy_bytes,
      c.heads_per_tile, c.packed_q, c.packed_k, c.paged, c.seqused_k, c.bounded, c.general_scale, c.softcap, c.alibi,
      c.mask, c.k_scale, c.k_token_scale, c.v_token_scale);
  return {portable_name(c), "cuda/device/kernels/portable_forward.cuh", {"ONCHIP_PORTABLE_CONFIG=" + config}, arch};
}

}  // namespace onchip::cuda
