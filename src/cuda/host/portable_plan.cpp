#include "cuda/host/portable_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "cuda/host/layouts.hpp"
#include "cuda/shared/split.hpp"

namespace onchip::cuda {
namespace {

constexpr int kWidestCopy = 16;
constexpr int kStreamedChunk = 64;  // columns of q and k, when shared memory cannot hold all
constexpr int kWidestValues = 256;  // columns of o that a CTA keeps in registers
constexpr int kFewRows = 64;        // up to here one small tile does, and query heads share it
constexpr int kSmallestTile = 16;   // rows
constexpr int kMostStages = 4;
constexpr int kReservedShared = 1024;  // of each CTA: what the driver takes, and the kernel's static variables
constexpr std::int64_t kMaxLength = std::numeric_limits<std::int32_t>::max() - 1024;
constexpr std::int64_t kMaxGridX = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxGridY = 65535;

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

/// Rows that the tiles of a sequence have at most for each query head that shares them; where the result must not
/// depend on the batch, neither may the tile.
std::int64_t most_rows(const Problem& p) {
  return p.layout_q == Layout::packed && p.args.batch_invariant ? kMaxLength : p.max_seqlen_q;
}

/// Query heads of a KV head that share tiles: as many as leave the tile small.
int heads_per_tile(const Problem& p) {
  std::int64_t heads = p.heads_per_kv();
  while (heads > 1 && (p.heads_per_kv() % heads != 0 || most_rows(p) * heads > kFewRows)) --heads;
  return static_cast<int>(heads);
}

/// Tile sizes by what a thread's registers hold: rows · (keys + columns of o) / 32 numbers each of scores and output,
/// and room for the terms of general scores. A warp of 32 rows uses each operand fragment of k and v twice, so it comes
/// first.
void choose_tile(PortableConfig& c, bool few_rows) {
  const int wide = std::max(c.padded_head_dim(), c.padded_head_dim_v());
  const bool narrow_math = c.math == Math::bf16 || c.math == Math::f16;
  const bool plain = !c.general_scores() && !c.mask && !c.v_token_scale;
  c.warps = 4;
  c.tile_m = !few_rows && (wide <= 64 || (wide <= 128 && plain)) ? 128 : 64;
  if (wide > 256 || (wide > 128 && !plain))
    c.tile_n = 32;
  else if (narrow_math)
    c.tile_n = wide <= 64 && plain ? 128 : 64;
  else
    c.tile_n = c.math == Math::tf32 && wide <= 64 && plain ? 64 : 32;
  c.ctas_per_sm = wide <= 256 ? 2 : 1;
}

/// As many stages as leave room for a second CTA, if that is three; else as many as fit.
void choose_stages(PortableConfig& c, const PortableTarget& target) {
  const int whole = target.shared_bytes_per_block - kReservedShared;
  const int half = (target.shared_bytes_per_block + kReservedShared) / 2 - 2 * kReservedShared;
  const auto stages = [&](int bytes) { return std::min((bytes - c.stages_offset()) / c.stage_bytes(), kMostStages); };
  c.ctas_per_sm = stages(half) >= 3 ? 2 : 1;
  c.num_stages = std::max(1, stages(c.ctas_per_sm == 2 ? half : whole));
}

/// Few rows are bound by memory: warps share rows, and keys and values are asked for well ahead.
void choose_small_tile(PortableConfig& c, std::int64_t rows, const PortableTarget& target) {
  const bool wide = std::max(c.padded_head_dim(), c.padded_head_dim_v()) > 128;
  c.warps = 4;
  c.tile_m = rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
  c.key_warps = c.tile_m == 16 || (c.tile_m == 32 && !wide) ? 4 : c.tile_m == 32 ? 2 : 1;
  c.tile_n = c.tile_m == 64 && (c.general_scores() || c.math == Math::f32) ? 32 : 64;
  choose_stages(c, target);
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
  x.lse_layout = lse_layout(a.lse, packed_q);
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

std::int64_t padded_head_dim_v(const Problem& p) { return (p.head_dim_v + 3) / 4 * 4; }

/// Rows of o over all sequences and heads.
std::int64_t output_rows(const Problem& p) {
  return (p.layout_q == Layout::packed ? p.args.q.shape[0] : p.batch * p.args.q.shape[1]) * p.num_heads_q;
}

/// Partial results lie row-major: [num_splits, all queries, heads, …].
RowLayout partial_layout(const Problem& p, std::int64_t row_bytes) {
  const std::int64_t query = p.num_heads_q * row_bytes;
  return {p.layout_q == Layout::packed ? 0 : p.args.q.shape[1] * query, query, row_bytes};
}

struct PartialBytes {
  std::size_t o, states;  // of all splits
};

PartialBytes partial_bytes(const Problem& p, std::int64_t num_splits) {
  const auto rows = static_cast<std::size_t>(output_rows(p) * num_splits);
  return {rows * static_cast<std::size_t>(padded_head_dim_v(p)) * sizeof(float), rows * 2 * sizeof(float)};
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

Element output_element(const Problem& p) { return p.dtype() == DType::e4m3 ? Element::bf16 : element(p.dtype()); }

Status portable_target(const std::string& arch, PortableTarget& target) {
  struct Known {
    const char* arch;
    int shared_kib;
    int multiprocessors;
  };
  // CUDA C++ Programming Guide, technical specifications per compute capability: shared memory per block.
  constexpr Known kKnown[] = {{"sm_80", 163, 108},  {"sm_86", 99, 84},     {"sm_87", 163, 16},    {"sm_89", 99, 142},
                              {"sm_90a", 227, 132}, {"sm_100a", 227, 148}, {"sm_103a", 227, 148}, {"sm_110a", 227, 20},
                              {"sm_120a", 99, 188}, {"sm_121a", 99, 48}};
  std::string names;
  for (const Known& known : kKnown) {
    if (arch == known.arch) {
      target = {known.shared_kib * 1024, known.multiprocessors};
      return {};
    }
    names += (names.empty() ? "" : ", ") + std::string(known.arch);
  }
  return invalid("arch: '{}', expected one of {}", arch, names);
}

namespace {

bool fits(const PortableConfig& c, const PortableTarget& target) {
  return c.shared_bytes() <= target.shared_bytes_per_block - kReservedShared;
}

/// The configuration that writes whole results.
PortableConfig whole_config(const Problem& p, const PortableTarget& target) {
  const Attention& a = p.args;
  PortableConfig c;
  c.q_type = element(a.q.dtype);
  c.kv_type = element(a.k.dtype);
  c.o_type = output_element(p);
  c.bias_type = a.bias.present() ? element(a.bias.dtype) : Element::none;
  c.math = math(p);
  c.head_dim = static_cast<int>(p.head_dim);
  c.head_dim_v = static_cast<int>(std::min<std::int64_t>(p.head_dim_v, kWidestValues));
  c.head_dim_chunk = c.padded_head_dim();
  c.heads_per_tile = heads_per_tile(p);
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
  const std::int64_t rows = most_rows(p) <= kFewRows ? most_rows(p) * c.heads_per_tile : kMaxLength;
  const bool few_rows = rows <= kFewRows;
  if (few_rows && std::max(c.padded_head_dim(), c.padded_head_dim_v()) <= kWidestValues)
    choose_small_tile(c, rows, target);
  else
    choose_tile(c, few_rows);
  if (!fits(c, target)) c.head_dim_chunk = kStreamedChunk;
  return c;
}

bool small_tile(const PortableConfig& c) { return c.num_stages > 1 || c.key_warps > 1; }

/// The configuration of one split.
PortableConfig partial_config(PortableConfig c) {
  c.output = Output::partial;
  c.o_type = Element::f32;
  c.o_copy_bytes = kWidestCopy;
  return c;
}

/// Keys that one tile of queries sees at most.
std::int64_t most_keys(const Problem& p, const PortableConfig& c) {
  if (p.window_left < 0 || p.window_right < 0) return p.max_seqlen_k;
  const std::int64_t queries = ceil_div(c.tile_m, c.heads_per_tile);
  const std::int64_t left = std::min(p.window_left, p.max_seqlen_k), right = std::min(p.window_right, p.max_seqlen_k);
  return std::min(p.max_seqlen_k, left + right + queries);
}

/// Tiles that have rows: of packed sequences the list is longer.
std::int64_t busy_tiles(const Problem& p, const PortableConfig& c) {
  const std::int64_t of_sequence = ceil_div(p.max_seqlen_q * c.heads_per_tile, c.tile_m);
  const std::int64_t blocks = c.packed_q ? std::min(row_blocks(p, c), p.batch * of_sequence) : p.batch * of_sequence;
  return blocks * (p.num_heads_q / c.heads_per_tile) * ceil_div(p.head_dim_v, c.head_dim_v);
}

}  // namespace

PortablePlan portable_plan(const Problem& p, const PortableTarget& target) {
  PortablePlan plan{whole_config(p, target)};
  const PortableConfig& c = plan.config;
  const PortableConfig partial = partial_config(c);
  if (!fits(partial, target)) return plan;
  if (p.args.batch_invariant) {
    if (!small_tile(c)) return plan;
    const FixedSplits fixed = fixed_splits(most_keys(p, c), c.tile_n);
    plan.num_splits = fixed.num_splits;
    plan.split_size = fixed.size;
  } else {
    // CTAs of many rows are bound by their multiprocessor's arithmetic, so that a second one only shares it.
    const std::int64_t slots = std::int64_t{target.multiprocessors} * (small_tile(c) ? c.ctas_per_sm : 1);
    plan.num_splits =
        choose_num_splits({busy_tiles(p, c), most_keys(p, c), c.tile_n, std::max<std::int64_t>(slots, 1)});
  }
  if (plan.num_splits > 1) plan.config = partial;
  return plan;
}

std::size_t portable_workspace_bytes(const Problem& p, const PortablePlan& plan) {
  if (plan.num_splits <= 1) return 0;
  const PartialBytes bytes = partial_bytes(p, plan.num_splits);
  return bytes.o + bytes.states;
}

PortableLaunch portable_launch(const Problem& p, const PortablePlan& plan, int l2_bytes, std::byte* workspace) {
  const PortableConfig& c = plan.config;
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

  x.num_splits = static_cast<std::int32_t>(plan.num_splits);
  x.split_size = static_cast<std::int32_t>(plan.split_size);
  if (plan.num_splits > 1) {
    const PartialBytes bytes = partial_bytes(p, plan.num_splits);
    x.o = reinterpret_cast<char*>(workspace);
    x.lse = x.o + bytes.o;
    x.o_layout = partial_layout(p, padded_head_dim_v(p) * static_cast<std::int64_t>(sizeof(float)));
    x.lse_layout = partial_layout(p, 2 * sizeof(float));
    x.split_o_bytes = static_cast<std::int64_t>(bytes.o) / plan.num_splits;
    x.split_state_bytes = static_cast<std::int64_t>(bytes.states) / plan.num_splits;
  }

  const std::int64_t head_tiles = p.num_heads_q / c.heads_per_tile;
  const std::int64_t columns = c.packed_q ? head_tiles : head_tiles * p.batch;
  const std::int64_t m_blocks = row_blocks(p, c);
  x.m_blocks = static_cast<std::int32_t>(m_blocks);
  x.head_tiles = static_cast<std::int32_t>(head_tiles);
  x.l2_group = static_cast<std::int32_t>(l2_group(p, c, columns, l2_bytes));
  launch.grid_x = m_blocks * columns * plan.num_splits;
  launch.grid_y = (p.head_dim_v + c.head_dim_v - 1) / c.head_dim_v;
  return launch;
}

CombineParams combine_params(const Problem& p, const PortablePlan& plan, std::byte* workspace) {
  const Attention& a = p.args;
  const bool packed = p.layout_q == Layout::packed;
  CombineParams x{};
  x.partial_o = reinterpret_cast<const char*>(workspace);
  x.states = x.partial_o + partial_bytes(p, plan.num_splits).o;
  x.sink = data<char>(a.sink);
  x.o = static_cast<char*>(a.o.data);
  x.lse = static_cast<char*>(a.lse.data);
  PortableParams layouts{};
  set_layouts(p, layouts);
  x.o_layout = layouts.o_layout;
  x.lse_layout = layouts.lse_layout;
  x.sink_layout = layouts.sink_layout;
  x.rows = output_rows(p);
  x.seqlen_q = packed ? a.q.shape[0] : a.q.shape[1];
  x.num_heads = static_cast<std::int32_t>(p.num_heads_q);
  x.num_splits = static_cast<std::int32_t>(plan.num_splits);
  x.head_dim_v = static_cast<std::int32_t>(p.head_dim_v);
  x.padded_head_dim_v = static_cast<std::int32_t>(padded_head_dim_v(p));
  return x;
}

std::optional<std::string> portable_reject(const Problem& p) {
  if (p.dtype() == DType::f64) return "f64 is computed on the CPU";
  const std::int64_t rows = (p.layout_q == Layout::packed ? p.args.q.shape[0] : p.max_seqlen_q) * p.heads_per_kv();
  if (rows > kMaxLength || p.max_seqlen_k > kMaxLength || p.num_heads_q * p.batch > kMaxLength)
    return "a length of 2^31 or more";
  if (p.head_dim > 1 << 20 || p.head_dim_v > kMaxGridY * kWidestValues) return "a head dimension beyond 2^20";
  const bool packed = p.layout_q == Layout::packed;
  const double blocks = static_cast<double>(rows) / kSmallestTile + 1 + (packed ? static_cast<double>(p.batch) : 0);
  const double columns = static_cast<double>(p.num_heads_q) * (packed ? 1 : static_cast<double>(p.batch));
  const double splits = p.args.batch_invariant ? static_cast<double>(kMaxFixedSplits) : 1;
  if (blocks * columns * splits > static_cast<double>(kMaxGridX)) return "more than 2^31 tiles of queries";
  return std::nullopt;
}

std::string portable_name(const PortableConfig& c) {
  std::string text = fmt::format("portable_forward_{}", element_name(c.q_type));
  if (c.math == Math::tf32) text += "_tf32";
  if (c.kv_type != c.q_type) text += fmt::format("_kv_{}", element_name(c.kv_type));
  text += fmt::format("_d{}", c.head_dim);
  if (c.head_dim_v != c.head_dim) text += fmt::format("_dv{}", c.head_dim_v);
  text += fmt::format("_m{}n{}w{}", c.tile_m, c.tile_n, c.warps);
  if (c.key_warps > 1) text += fmt::format("k{}", c.key_warps);
  if (c.num_stages > 1) text += fmt::format("s{}", c.num_stages);
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
  if (c.bias_type != Element::none) text += fmt::format("_bias{}", element_name(c.bias_type));
  if (c.output == Output::partial) text += "_partial";
  if (std::min({c.q_copy_bytes, c.k_copy_bytes, c.v_copy_bytes, c.o_copy_bytes}) < kWidestCopy)
    text += fmt::format("_a{}_{}_{}_{}", c.q_copy_bytes, c.k_copy_bytes, c.v_copy_bytes, c.o_copy_bytes);
  return text;
}

KernelRequest portable_request(const PortableConfig& c, const std::string& arch) {
  const std::string config = fmt::format(
      "{{.q_type={},.kv_type={},.o_type={},.bias_type={},.math={},.output={},.head_dim={},.head_dim_v={},.head_dim_"
      "chunk={}"
      ",.tile_m={},.tile_n={},.warps={},.key_warps={},.num_stages={},.ctas_per_sm={},.q_copy_bytes={},.k_copy_bytes={}"
      ",.v_copy_bytes={},.o_copy_bytes={},.heads_per_tile={},.packed_q={},.packed_k={},.paged={},.seqused_k={},."
      "bounded={}"
      ",.general_scale={},.softcap={},.alibi={},.mask={},.k_scale={},.k_token_scale={},.v_token_scale={}}}",
      enumerator_text("Element", c.q_type), enumerator_text("Element", c.kv_type), enumerator_text("Element", c.o_type),
      enumerator_text("Element", c.bias_type), enumerator_text("Math", c.math), enumerator_text("Output", c.output),
      c.head_dim, c.head_dim_v, c.head_dim_chunk, c.tile_m, c.tile_n, c.warps, c.key_warps, c.num_stages, c.ctas_per_sm,
      c.q_copy_bytes, c.k_copy_bytes, c.v_copy_bytes, c.o_copy_bytes, c.heads_per_tile, c.packed_q, c.packed_k, c.paged,
      c.seqused_k, c.bounded, c.general_scale, c.softcap, c.alibi, c.mask, c.k_scale, c.k_token_scale, c.v_token_scale);
  return {portable_name(c), "cuda/device/kernels/portable_forward.cuh", {"ONCHIP_PORTABLE_CONFIG=" + config}, arch};
}

KernelRequest combine_request(Element o_type, const std::string& arch) {
  return {fmt::format("combine_splits_{}", element_name(o_type)),
          "cuda/device/kernels/combine_splits.cuh",
          {"ONCHIP_COMBINE_OUTPUT=" + enumerator_text("Element", o_type)},
          arch};
}

std::vector<KernelRequest> portable_requests(const Problem& p, const PortableTarget& target, const std::string& arch) {
  const PortableConfig whole = whole_config(p, target);
  const PortableConfig partial = partial_config(whole);
  std::vector<KernelRequest> requests = {portable_request(whole, arch)};
  if (fits(partial, target)) {
    requests.push_back(portable_request(partial, arch));
    requests.push_back(combine_request(whole.o_type, arch));
  }
  return requests;
}

}  // namespace onchip::cuda
