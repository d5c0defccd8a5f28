#include "cuda/host/fwd_sm90_plan.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/host/portable_plan.hpp"

namespace onchip::cuda {
namespace {

constexpr int kAccumulatorRegisters = 200;  // of the 232 of a consumer thread
constexpr std::int64_t kWidestHead = 256;
constexpr std::int64_t kWidestWithAllTerms = 128;  // beyond, registers do not hold them
constexpr std::int64_t kFewRows = 64;              // queries of a KV head's query heads that leave most of a tile empty
constexpr std::int64_t kLongSequence = 8192;
constexpr std::int64_t kLongestSequence = std::int64_t{1} << 30;
constexpr std::int64_t kLargestDim = std::int64_t{1} << 32;
constexpr std::int64_t kLargestStrideBytes = std::int64_t{1} << 40;
constexpr int kCopyAlignment = 16;  // bytes, of addresses and strides

/// A tensor of rows as the copy engine sees it: [batch][head][row][column], batch 1 when packed.
struct CopyView {
  std::array<std::int64_t, 3> size;    // rows, heads, batch
  std::array<std::int64_t, 3> stride;  // elements
};

CopyView copy_view(const Tensor& t, bool packed) {
  if (packed) return {{t.shape[0], t.shape[1], 1}, {t.stride[0], t.stride[1], 0}};
  return {{t.shape[1], t.shape[2], t.shape[0]}, {t.stride[1], t.stride[2], t.stride[0]}};
}

/// Heads and batches may be broadcast: then the copy engine sees one of them.
bool walks(const CopyView& view, int dim) { return view.size[dim] > 1 && view.stride[dim] != 0; }

std::optional<std::string> reject_layout(const char* name, const Tensor& t, bool packed) {
  const CopyView view = copy_view(t, packed);
  const auto element = static_cast<std::int64_t>(size_of(t.dtype));
  if (reinterpret_cast<std::uintptr_t>(t.data) % kCopyAlignment != 0)
    return fmt::format("{}: its address is not a multiple of {} bytes", name, kCopyAlignment);
  for (int d = 0; d < 3; ++d) {
    if (view.size[d] <= 1) continue;
    const std::int64_t bytes = view.stride[d] * element;
    if (d == 0 && bytes == 0) return fmt::format("{}: rows are broadcast", name);
    if (bytes % kCopyAlignment != 0)
      return fmt::format("{}: a stride is not a multiple of {} bytes", name, kCopyAlignment);
    if (bytes < 0 || bytes >= kLargestStrideBytes || view.size[d] >= kLargestDim)
      return fmt::format("{}: a stride or size beyond what the copy engine takes", name);
  }
  return std::nullopt;
}

std::optional<std::string> reject_output(const Tensor& o) {
  const auto element = static_cast<std::int64_t>(size_of(o.dtype));
  bool aligned = reinterpret_cast<std::uintptr_t>(o.data) % kCopyAlignment == 0;
  for (int d = 0; d + 1 < o.rank; ++d)
    aligned = aligned && (o.shape[d] <= 1 || o.stride[d] * element % kCopyAlignment == 0);
  if (aligned) return std::nullopt;
  return fmt::format("o: its address or a stride is not a multiple of {} bytes", kCopyAlignment);
}

/// Keys of a step: as many as shared memory and registers hold, up to 128. Beyond 64 columns two tiles of q are worth
/// more than longer steps; up to 64 columns and with long sequences 176 keys make up for their longer last step.
/// (H200, 2026-11-29, D 64: 518 against 488 TFLOP/s at 16384, 395 against 426 at 1024)
int tile_n(FwdSm90Config config, std::int64_t max_seqlen_k) {
  const bool narrow = config.qk_chunks() == 1 && config.v_chunks() == 1;
  config.attention.tile_n = narrow && max_seqlen_k >= kLongSequence ? 176 : 128;
  // Scores that are looked up one by one take registers for addresses.
  if (!config.defers_maximum()) config.attention.tile_n = 64;
  while (config.shared_bytes() > FwdSm90Config::kSharedBytes || config.accumulator_registers() > kAccumulatorRegisters)
    config.attention.tile_n -= 16;
  return config.attention.tile_n;
}

std::optional<std::string> better_elsewhere(const Problem& p, int multiprocessors) {
  if (p.args.batch_invariant)
    return "whether its tiles fill the GPU depends on the batch, and batch_invariant forbids that";
  if (p.max_seqlen_q * p.heads_per_kv() <= kFewRows) return "few queries, which would leave most of a tile empty";
  const FwdSm90Config config = fwd_sm90_config(p, multiprocessors);
  const std::int64_t tiles = fwd_sm90_launch(p, config, multiprocessors, 0).params.num_tiles;
  if (tiles * 2 > multiprocessors || portable_plan(p, {FwdSm90Config::kSharedBytes, multiprocessors}).num_splits == 1)
    return std::nullopt;
  return fmt::format("{} tiles would leave most of {} multiprocessors idle, where keys can be split", tiles,
                     multiprocessors);
}

Status encode(const Driver& driver, const char* name, const Tensor& t, bool packed, int rows, TensorMap& map) {
  const CopyView view = copy_view(t, packed);
  const auto element = static_cast<std::uint64_t>(size_of(t.dtype));
  const std::uint64_t sizes[4] = {static_cast<std::uint64_t>(t.shape[t.rank - 1]),
                                  static_cast<std::uint64_t>(view.size[0]),
                                  walks(view, 1) ? static_cast<std::uint64_t>(view.size[1]) : 1,
                                  walks(view, 2) ? static_cast<std::uint64_t>(view.size[2]) : 1};
  std::uint64_t strides[3];
  for (int d = 0; d < 3; ++d)
    strides[d] =
        sizes[d + 1] > 1 ? static_cast<std::uint64_t>(view.stride[d]) * element : std::uint64_t{kCopyAlignment};
  const std::uint32_t box[4] = {FwdSm90Config::kChunk, static_cast<std::uint32_t>(rows), 1, 1};
  const std::uint32_t unit[4] = {1, 1, 1, 1};
  const int type = t.dtype == DType::bf16 ? kTensorMapBFloat16 : kTensorMapFloat16;
  const DriverResult result =
      driver.cuTensorMapEncodeTiled(&map, type, 4, t.data, sizes, strides, box, unit, kTensorMapNoInterleave,
                                    kTensorMapSwizzle128, kTensorMapPromoteTo256, kTensorMapZeroFill);
  return driver.check(result, fmt::format("cuTensorMapEncodeTiled of {}", name).c_str());
}

}  // namespace

std::optional<std::string> fwd_sm90_reject(const Problem& p, int multiprocessors) {
  const Attention& a = p.args;
  if (auto reason = portable_reject(p)) return reason;
  if ((a.q.dtype != DType::bf16 && a.q.dtype != DType::f16) || a.k.dtype != a.q.dtype)
    return "q, k and v are not all bf16 or all f16";
  if (p.head_dim % 8 != 0 || p.head_dim_v % 8 != 0 || p.head_dim > kWidestHead || p.head_dim_v > kWidestHead)
    return fmt::format("head_dim {} and head_dim_v {}, expected multiples of 8 up to {}", p.head_dim, p.head_dim_v,
                       kWidestHead);
  if (p.layout_k == Layout::paged) return "k and v are paged";
  const bool looked_up = a.bias.present() || a.mask.present();
  if (looked_up && (p.softcap > 0 || a.alibi_slopes.present()) && p.head_dim_v > kWidestWithAllTerms)
    return fmt::format("bias or mask with softcap or ALiBi at head_dim_v {}, expected up to {}", p.head_dim_v,
                       kWidestWithAllTerms);
  const bool packed_q = p.layout_q == Layout::packed, packed_k = p.layout_k == Layout::packed;
  if (a.k.shape[packed_k ? 0 : 1] == 0) return "there are no keys";
  if (p.max_seqlen_q >= kLongestSequence || p.max_seqlen_k >= kLongestSequence)
    return fmt::format("a sequence of {} or more", kLongestSequence);
  // What others do faster, a caller can still ask for by name.
  if (a.at_least != kFwdSm90Name)
    if (auto reason = better_elsewhere(p, multiprocessors)) return reason;
  if (auto reason = reject_layout("q", a.q, packed_q)) return reason;
  if (auto reason = reject_layout("k", a.k, packed_k)) return reason;
  if (auto reason = reject_layout("v", a.v, packed_k)) return reason;
  return reject_output(a.o);
}

FwdSm90Config fwd_sm90_config(const Problem& p, int multiprocessors) {
  FwdSm90Config config{portable_plan(p, {FwdSm90Config::kSharedBytes, multiprocessors}).config};
  PortableConfig& c = config.attention;
  c.output = Output::whole;
  c.key_warps = 1;
  c.num_stages = 1;
  c.head_dim_v = static_cast<int>(p.head_dim_v);
  c.head_dim_chunk = c.padded_head_dim();
  c.tile_m = FwdSm90Config::kConsumers * FwdSm90Config::kWarpgroupRows;
  c.warps = FwdSm90Config::kConsumerThreads / 32;
  c.ctas_per_sm = 1;
  c.heads_per_tile = 1;
  c.q_copy_bytes = c.k_copy_bytes = c.v_copy_bytes = c.o_copy_bytes = kCopyAlignment;
  c.tile_n = tile_n(config, p.args.batch_invariant ? 0 : p.max_seqlen_k);
  return config;
}

FwdSm90Launch fwd_sm90_launch(const Problem& p, const FwdSm90Config& config, int multiprocessors, int l2_bytes) {
  const PortableLaunch tiles = portable_launch(p, {config.attention}, l2_bytes, nullptr);
  FwdSm90Launch launch{};
  FwdSm90Params& x = launch.params;
  x.attention = tiles.params;
  const auto factors = [](const CopyView& view, std::int32_t& head, std::int32_t& batch) {
    head = walks(view, 1), batch = walks(view, 2);
  };
  factors(copy_view(p.args.q, config.attention.packed_q), x.q_head, x.q_batch);
  factors(copy_view(p.args.k, config.attention.packed_k), x.k_head, x.k_batch);
  factors(copy_view(p.args.v, config.attention.packed_k), x.v_head, x.v_batch);
  x.num_tiles = static_cast<std::int32_t>(tiles.grid_x);
  const PortableConfig& c = config.attention;
  // Tiles of one length are best taken head by head: then what L2 and main memory move is spread evenly over time.
  if (!c.bounded)
    x.attention.l2_group = std::min(x.attention.l2_group, (multiprocessors - 1) / x.attention.m_blocks + 1);
  const std::int64_t enough = (tiles.grid_x + FwdSm90Config::kMostTiles - 1) / FwdSm90Config::kMostTiles;
  launch.grid = std::min(tiles.grid_x, std::max<std::int64_t>(multiprocessors, enough));
  launch.shares_out = tiles.grid_x > launch.grid && (c.bounded || c.packed_q || c.packed_k || c.seqused_k);
  return launch;
}

Status encode_tensor_maps(const Driver& driver, const Problem& p, const FwdSm90Config& config, FwdSm90Params& x) {
  const PortableConfig& c = config.attention;
  ONCHIP_RETURN_IF_ERROR(encode(driver, "q", p.args.q, c.packed_q, FwdSm90Config::kWarpgroupRows, x.q_map));
  ONCHIP_RETURN_IF_ERROR(encode(driver, "k", p.args.k, c.packed_k, c.tile_n, x.k_map));
  return encode(driver, "v", p.args.v, c.packed_k, c.tile_n, x.v_map);
}

std::string fwd_sm90_name(const FwdSm90Config& config) {
  return "fwd_sm90" + portable_name(config.attention).substr(std::string("portable_forward").size());
}

KernelRequest fwd_sm90_request(const FwdSm90Config& config, const std::string& arch) {
  KernelRequest request = portable_request(config.attention, arch);
  request.name = fwd_sm90_name(config);
  request.source = "cuda/device/kernels/fwd_sm90.cuh";
  std::string& define = request.defines.front();
  define = "ONCHIP_FWD_SM90_CONFIG={" + define.substr(define.find('=') + 1) + "}";
  return request;
}

}  // namespace onchip::cuda
