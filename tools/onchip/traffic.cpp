// onchip traffic: the bytes that each memory level of a machine moves for standard and for tiled attention.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "model/tile_choice.hpp"
#include "onchip/attention_options.hpp"
#include "onchip/commands.hpp"
#include "onchip/input_error.hpp"
#include "onchip/machine_option.hpp"
#include "onchip/shape_options.hpp"
#include "onchip/traffic_report.hpp"

namespace onchip::cli {
namespace {

constexpr const char* kFooter =
    "A level's bytes are those that cross between it and the levels nearer to the arithmetic. 'written later' is what\n"
    "the shared cache still holds when the last kernel ends. The bound lets every resource work at its peak at the "
    "same\n"
    "time, so nothing can be faster. docs/traffic.md has the formulas, their sources and how they compare with "
    "counters.\n"
    "Examples\n"
    "  onchip traffic --machine H200 --seqlen-q 8192 --heads 16 --head-dim 128 --dtype bf16\n"
    "  onchip traffic --machine H100 --seqlen-q 1 --seqlen-k 32768 --heads 32 --kv-heads 8 --head-dim 128 --dtype "
    "bf16\n"
    "  onchip traffic --machine host --causal --json\n"
    "  onchip traffic --machine mine.json --tile 128,64 --pass backward";

struct Options {
  ShapeOptions shape;
  AttentionOptions attention;
  std::string machine = "H200";
  std::string pass = "forward";
  std::string score_dtype;
  std::vector<std::int64_t> tile;
  std::int64_t cluster = 0;         // 0: as the machine's matrix products
  std::int64_t heads_per_tile = 0;  // 0: chosen
  std::int64_t num_splits = 1;
  bool json = false;
};

Pass parse_pass(const std::string& text) {
  if (text == "forward") return Pass::forward;
  if (text == "backward") return Pass::backward;
  refuse("--pass: '{}', expected forward or backward", text);
}

void check_heads(const Shape& s) {
  const auto positive = [](const char* option, std::int64_t value) {
    if (value < 1) refuse("{}: {}, expected at least 1", option, value);
  };
  positive("--heads", s.heads);
  positive("--kv-heads", s.kv_heads);
  positive("--head-dim", s.head_dim);
  positive("--head-dim-v", s.head_dim_v);
  if (s.heads % s.kv_heads != 0) refuse("--kv-heads: {}, expected a divisor of --heads {}", s.kv_heads, s.heads);
}

bool is_one_of(DType type, std::initializer_list<DType> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

void check_types(DType dtype, DType kv_dtype) {
  if (!is_one_of(dtype, {DType::f64, DType::f32, DType::bf16, DType::f16, DType::e4m3}))
    refuse("--dtype: {}, expected f64, f32, bf16, f16 or e4m3", onchip::name(dtype));
  if (kv_dtype != dtype && !is_one_of(kv_dtype, {DType::i8, DType::e4m3, DType::e5m2}))
    refuse("--kv-dtype: {}, expected {}, i8, e4m3 or e5m2", onchip::name(kv_dtype), onchip::name(dtype));
}

void check_window(const Attention& attention) {
  for (const std::int64_t bound : {attention.window_left, attention.window_right})
    if (bound < -1) refuse("--window: {}, expected −1 (no bound) or more", bound);
}

model::AttentionShape model_shape(const Options& options) {
  const ShapedProblem shaped = options.shape.problem();
  Attention attention = shaped.attention;
  options.attention.apply(attention);
  Shape s = options.shape.shape;
  s.dtype = attention.q.dtype;
  s.kv_dtype = attention.k.dtype;
  s = resolved(s);
  check_heads(s);
  check_types(s.dtype, s.kv_dtype);
  check_window(attention);
  model::AttentionShape shape;
  shape.batch = s.batch;
  shape.seqlen_q = s.seqlen_q;
  shape.seqlen_k = s.seqlen_k;
  shape.num_heads_q = s.heads;
  shape.num_heads_kv = s.kv_heads;
  shape.head_dim = s.head_dim;
  shape.head_dim_v = s.head_dim_v;
  shape.window_left = attention.window_left;
  shape.window_right = attention.window_right;
  if (attention.causal) shape.window_right = 0;
  shape.top_left = attention.alignment == Alignment::top_left;
  shape.dtype = s.dtype;
  shape.kv_dtype = s.kv_dtype;
  const double bias = attention.bias.present() ? 4 : 0, mask = attention.mask.present() ? 1 : 0;
  shape.score_bytes_per_pair = bias + mask;
  // A bias is shared by the sequences of the batch, a mask by the heads.
  if (bias + mask > 0)
    shape.score_sharers = (bias + mask) / (bias / static_cast<double>(s.batch) + mask / static_cast<double>(s.heads));
  return shape;
}

/// Heads that share their keys fill a tile that a few queries would leave empty; on a CPU they always share it.
std::int64_t heads_per_tile(const Options& options, const model::Machine& machine, const model::AttentionShape& shape) {
  constexpr std::int64_t kFewQueries = 64;
  if (options.heads_per_tile > 0) return std::min(options.heads_per_tile, shape.heads_per_kv());
  return machine.kind == model::MachineKind::cpu || shape.seqlen_q < kFewQueries ? shape.heads_per_kv() : 1;
}

model::Tiling tiling_from(const Options& options, const model::Machine& machine, const model::AttentionShape& shape) {
  model::Tiling tiling;
  tiling.cluster = options.cluster > 0 ? options.cluster : static_cast<std::int64_t>(machine.gemm.cluster);
  tiling.heads_per_tile = heads_per_tile(options, machine, shape);
  tiling.num_splits = options.num_splits;
  if (!options.tile.empty()) {
    tiling.tile_m = options.tile[0];
    tiling.tile_n = options.tile[1];
    if (tiling.tile_m < 1 || tiling.tile_n < 1)
      refuse("--tile: {},{}, expected two sizes of at least 1", tiling.tile_m, tiling.tile_n);
  }
  return tiling;
}

/// What the CPU backend would run with; nothing where it does not take the problem.
std::optional<TileConfig> host_tile(const Options& options, Pass pass) {
  const ShapedProblem shaped = options.shape.problem();
  Attention attention = shaped.attention;
  options.attention.apply(attention);
  attention.backend = Backend::cpu;
  try {
    return plan(attention, pass).tile;
  } catch (const Error& error) {
    if (error.code() != StatusCode::unsupported && error.code() != StatusCode::invalid_argument) throw;
    return std::nullopt;
  }
}

std::optional<model::TileOption> choose_tile(const Options& options, const TrafficReport& report,
                                             model::Tiling tiling) {
  const auto option = [&] { return model::tile_option(report.machine, report.shape, tiling, report.pass); };
  if (!options.tile.empty()) return option();
  if (options.machine == kHostMachine)
    if (const std::optional<TileConfig> tile = host_tile(options, report.pass); tile && tile->tile_m > 0) {
      tiling.tile_m = tile->tile_m;
      tiling.tile_n = tile->tile_n;
      tiling.num_splits = tile->num_splits;
      return option();
    }
  if (const model::TileOption* best = model::best_option(report.options)) return *best;
  return std::nullopt;
}

/// Scores are stored as the input where that has 16 bits, else in f32 (f64).
DType score_dtype(const Options& options, DType dtype) {
  if (!options.score_dtype.empty()) {
    const DType type = parse_dtype("--score-dtype", options.score_dtype);
    if (!is_one_of(type, {DType::f64, DType::f32, DType::bf16, DType::f16}))
      refuse("--score-dtype: {}, expected f64, f32, bf16 or f16", onchip::name(type));
    return type;
  }
  return dtype == DType::e4m3 ? DType::bf16 : dtype;
}

void print_traffic(const Options& options) {
  TrafficReport report;
  report.pass = parse_pass(options.pass);
  report.shape = model_shape(options);
  report.score_dtype = score_dtype(options, report.shape.dtype);
  report.machine = machine_from_option(options.machine);
  const model::Tiling tiling = tiling_from(options, report.machine, report.shape);

  model::StandardMethod method;
  method.score_dtype = report.score_dtype;
  report.kernels = model::standard_kernels(report.machine, report.shape, method, report.pass);
  report.standard = model::standard_traffic(report.machine, report.shape, method, report.pass);
  report.standard_roofline = model::roofline(report.machine, report.kernels, report.shape.dtype);
  report.options = model::tile_options(report.machine, report.shape, tiling, report.pass);
  report.tiled = choose_tile(options, report, tiling);
  if (report.tiled) report.tiled_roofline = model::roofline(report.machine, report.tiled->traffic, report.shape.dtype);
  const std::string text = options.json ? traffic_json(report) : traffic_text(report);
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_traffic(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("traffic", "Bytes that each memory level moves, standard beside tiled attention");
  command->footer(kFooter);
  command
      ->add_option("--machine", options->machine,
                   "H200, H100, A100, B200, RTX4090, RTX5090, host (this CPU, measured) or a JSON file")
      ->capture_default_str()
      ->type_name("NAME|FILE");
  command->add_option("--pass", options->pass, "forward or backward")->capture_default_str()->type_name("PASS");
  command
      ->add_option("--tile", options->tile,
                   "Query rows and keys of a tile (default: the best that fits; on host, the library's)")
      ->delimiter(',')
      ->expected(2)
      ->type_name("M,N");
  command
      ->add_option("--cluster", options->cluster,
                   "Thread blocks that share one read of K and V (default: the machine's)")
      ->check(CLI::Range(1, 16))
      ->type_name("N");
  command
      ->add_option("--heads-per-tile", options->heads_per_tile,
                   "Query heads of a KV head in one tile (default: chosen)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command->add_option("--splits", options->num_splits, "Parts of the keys whose results are merged")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      ->add_option("--score-dtype", options->score_dtype,
                   "Type that standard attention stores S and P in (default: as q)")
      ->type_name("TYPE");
  command->add_flag("--json", options->json, "Print JSON");
  options->shape.add(*command);
  options->attention.add_function(*command);
  command->callback([options] { print_traffic(*options); });
}

}  // namespace onchip::cli
