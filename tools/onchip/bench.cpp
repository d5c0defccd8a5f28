#include "onchip/bench.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cpu/host.hpp"
#include "cpu/measure.hpp"
#include "onchip/attention_options.hpp"
#include "onchip/commands.hpp"
#include "onchip/device_problem.hpp"
#include "onchip/input_error.hpp"
#include "onchip/io/output_file.hpp"
#include "onchip/progress.hpp"
#include "onchip/random_inputs.hpp"
#include "onchip/results.hpp"
#include "onchip/timed_pass.hpp"

namespace onchip::cli {
namespace {

constexpr const char* kFooter =
    "Every backend of a shape runs in turns with the others, on the same random normal inputs, after one warm-up. The\n"
    "spread is the distance of the quartiles over the median. GFLOP/s counts 2·(D + Dv) operations a visible pair of\n"
    "query and key going forward and 2.5 times that backward; GB/s is predicted main memory traffic over time. Both\n"
    "stand beside their share of what this machine's multiply-adds and reads reached in the same run.\n"
    "Examples\n"
    "  onchip bench\n"
    "  onchip bench --seqlen 1024,4096 --head-dim 128 --dtype f32,bf16 --causal --backward\n"
    "  onchip bench --decode --batch 4 --heads 32 --kv-heads 8 --head-dim 128 --seqlen 8192 --kv-dtype i8\n"
    "  onchip bench --backend cpu,standard --threads 1 --json bench.json";

struct Options {
  std::vector<std::string> seqlens = {"512,1024,2048"};
  std::vector<std::string> head_dims = {"64"};
  std::vector<std::string> dtypes = {"f32"};
  std::vector<std::string> backends = {"auto,standard"};
  std::string kv_dtype;
  Shape shape;
  AttentionOptions attention;
  bool decode = false;
  bool backward = false;
  double seconds = 1.0;
  std::string json;
};

std::vector<Shape> grid(const Options& options) {
  std::vector<Shape> shapes;
  for (const std::string& dtype : split_list("--dtype", options.dtypes))
    for (const std::int64_t head_dim : split_integers("--head-dim", options.head_dims))
      for (const std::int64_t seqlen : split_integers("--seqlen", options.seqlens)) {
        Shape shape = options.shape;
        shape.dtype = parse_dtype("--dtype", dtype);
        shape.kv_dtype = options.kv_dtype.empty() ? shape.dtype : parse_dtype("--kv-dtype", options.kv_dtype);
        shape.head_dim = head_dim;
        shape.seqlen_q = options.decode ? 1 : seqlen;
        shape.seqlen_k = seqlen;
        shapes.push_back(resolved(shape));
      }
  return shapes;
}

/// One shape with all backends and passes.
class Case {
 public:
  Case(const Options& options, const Shape& shape)
      : options_(options), shape_(shape), shaped_(make_shaped_problem(shape)) {
    options.attention.apply(shaped_.attention);
  }

  std::vector<BenchRow> run() {
    const RandomInputs inputs(shaped_.attention, options_.backward);
    const Results results(shaped_.attention, options_.backward);
    std::vector<Pass> passes = {Pass::forward};
    if (options_.backward) passes.push_back(Pass::backward);
    std::vector<BenchRow> rows;
    std::vector<std::unique_ptr<TimedPass>> timed;
    for (const Pass pass : passes)
      for (const std::string& backend : split_list("--backend", options_.backends))
        rows.push_back(prepare(pass, backend, timed));
    std::vector<TimedPass*> turns;
    for (const auto& pass : timed)
      if (pass) turns.push_back(pass.get());
    time_in_turns(turns, {3, 1000, options_.seconds * static_cast<double>(turns.size()), 60.0});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!timed[i]) continue;
      rows[i].plan = timed[i]->plan();
      rows[i].timing = timed[i]->timing();
    }
    return rows;
  }

 private:
  /// Warms up, or says in the row why not. The forward pass comes first: its o and lse are what backward reads.
  BenchRow prepare(Pass pass, const std::string& backend, std::vector<std::unique_ptr<TimedPass>>& timed) const {
    BenchRow row{shape_, options_.attention.causal, pass, parse_backend("--backend", backend), "", {}, {}};
    Attention args = shaped_.attention;
    args.backend = row.backend;
    timed.emplace_back();
    try {
      check_memory(plan(args.backend == Backend::cuda ? planned_on_gpu(args) : args, pass).workspace_bytes);
      timed.back() = std::make_unique<TimedPass>(args, pass);
      timed.back()->run_timed();
      timed.back()->forget_times();
    } catch (const Error& error) {
      if (error.code() != StatusCode::unsupported && error.code() != StatusCode::out_of_memory) throw;
      timed.back().reset();
      row.refusal = error.what();
    }
    return row;
  }

  static void check_memory(std::size_t workspace_bytes) {
    const std::optional<std::size_t> available = available_memory();
    if (available && workspace_bytes > *available)
      throw Error(StatusCode::out_of_memory,
                  fmt::format("needs {} of workspace", bytes_text(static_cast<double>(workspace_bytes))));
  }

  const Options& options_;
  Shape shape_;
  ShapedProblem shaped_;
};

BenchPeaks measure_peaks(const Options& options) {
  const int threads = options.attention.num_threads > 0 ? options.attention.num_threads : cpu::core_count().usable;
  return {threads, cpu::measure_peaks(threads)};
}

/// A backend that is named and missing is refused before anything is timed; one that takes some shapes and not others
/// says so in its rows.
void check_backends(const Options& options) {
  for (const std::string& name : split_list("--backend", options.backends))
    if (parse_backend("--backend", name) == Backend::cuda) check_gpu();
}

void bench(const Options& options) {
  if (!options.json.empty()) check_writable_path(options.json);
  check_backends(options);
  const std::vector<Shape> shapes = grid(options);
  std::vector<BenchRow> all;
  Progress progress(shapes.size() + 1);
  progress.step("the machine's peaks");
  const BenchPeaks peaks = measure_peaks(options);
  progress.clear();
  std::fputs(bench_table_header(peaks).c_str(), stdout);
  for (const Shape& shape : shapes) {
    progress.step(fmt::format("{} D {} S {}", onchip::name(shape.dtype), shape.head_dim, shape.seqlen_k));
    const std::vector<BenchRow> rows = Case(options, shape).run();
    progress.clear();
    for (const BenchRow& row : rows) std::fputs(bench_table_row(row, peaks).c_str(), stdout);
    std::fflush(stdout);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  if (options.json.empty()) return;
  OutputFile file(options.json);
  const std::string text = bench_json(all, peaks);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void add_grid_options(CLI::App& command, Options& options) {
  constexpr const char* kGroup = "The grid";
  const auto list = [&](const char* option, auto& values, const char* type, const char* help) {
    command.add_option(option, values, help)
        ->allow_extra_args(false)
        ->capture_default_str()
        ->type_name(type)
        ->group(kGroup);
  };
  list("--seqlen", options.seqlens, "N,…", "Queries and keys of each sequence");
  list("--head-dim", options.head_dims, "N,…", "Elements of a query, key or value");
  list("--dtype", options.dtypes, "TYPE,…", "Types of q: f64, f32, bf16, f16, e4m3");
  list("--backend", options.backends, "NAME,…", "Who computes: auto, cpu, cuda, standard");
}

void add_shape_options(CLI::App& command, Options& options) {
  constexpr const char* kGroup = "The same for every case";
  const auto size = [&](const char* option, std::int64_t& value, const char* help) {
    command.add_option(option, value, help)->type_name("N")->group(kGroup);
  };
  size("--batch", options.shape.batch, "Sequences (default 1)");
  size("--heads", options.shape.heads, "Query heads (default 8)");
  size("--kv-heads", options.shape.kv_heads, "Key and value heads, a divisor of --heads (default: as --heads)");
  size("--head-dim-v", options.shape.head_dim_v, "Elements of a value (default: as --head-dim)");
  size("--page-size", options.shape.page_size, "Keys of a page of the KV cache (default 0: not paged)");
  command.add_option("--kv-dtype", options.kv_dtype, "Type of k and v: as q, or i8, e4m3, e5m2 (default: as --dtype)")
      ->type_name("TYPE")
      ->group(kGroup);
  command.add_flag("--decode", options.decode, "One query a sequence, --seqlen keys")->group(kGroup);
  command.add_flag("--backward", options.backward, "The backward pass too")->group(kGroup);
  command.add_option("--threads", options.attention.num_threads, "CPU threads (default 0: all this process may use)")
      ->type_name("N")
      ->group(kGroup);
  command.add_option("--seconds", options.seconds, "Time to spend on each row (at least 3 runs)")
      ->capture_default_str()
      ->check([](const std::string& text) {
        const double value = std::strtod(text.c_str(), nullptr);
        return value > 0 && value <= 3600 ? std::string()
                                          : "'" + text + "', expected more than 0 and at most 3600 seconds";
      })
      ->type_name("S")
      ->group(kGroup);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "Time a grid of shapes, backend beside backend");
  command->footer(kFooter);
  command->add_option("--json", options->json, "Write the figures to this file too")->type_name("FILE");
  add_grid_options(*command, *options);
  add_shape_options(*command, *options);
  options->attention.add_function(*command);
  command->callback([options] { bench(*options); });
}

}  // namespace onchip::cli
