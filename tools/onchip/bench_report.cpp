// The table and the JSON of onchip bench.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "onchip/attention_options.hpp"
#include "onchip/bench.hpp"

namespace onchip::cli {
namespace {

std::string heads_text(const Shape& shape) {
  return shape.kv_heads == shape.heads ? std::to_string(shape.heads)
                                       : fmt::format("{}/{}", shape.heads, shape.kv_heads);
}

std::string type_text(const Shape& shape) {
  if (shape.dtype == shape.kv_dtype) return onchip::name(shape.dtype);
  return fmt::format("{}/{}", onchip::name(shape.dtype), onchip::name(shape.kv_dtype));
}

/// 16-bit and 8-bit types are multiplied in f32.
double peak_flops(const BenchRow& row, const BenchPeaks& peaks) {
  return row.shape.dtype == DType::f64 ? peaks.measured.f64_flops : peaks.measured.f32_flops;
}

double flops_per_second(const BenchRow& row) { return row.plan.predicted.flops / row.timing.median; }
double bytes_per_second(const BenchRow& row) { return predicted_bytes(row.plan) / row.timing.median; }

std::string share_text(double value, double peak) {
  return peak > 0 ? fmt::format("{:.0f}%", 100 * value / peak) : "–";
}

constexpr const char* kColumns = "{:<10}{:>5}{:>7}{:>8}{:>7}{:>5}{:>7}  {:<9}{:<20}{:>11}{:>8}{:>10}{:>7}{:>8}{:>7}";

}  // namespace

std::string bench_table_header(const BenchPeaks& peaks) {
  return fmt::format(
             "peaks of this machine, measured with {} threads: f32 {:.4g} GFLOP/s, f64 {:.4g} GFLOP/s, read {:.3g} "
             "GB/s\n",
             peaks.num_threads, peaks.measured.f32_flops / 1e9, peaks.measured.f64_flops / 1e9,
             peaks.measured.memory_bandwidth / 1e9) +
         fmt::format(fmt::runtime(kColumns), "type", "B", "Sq", "Sk", "heads", "D", "causal", "pass", "implementation",
                     "median", "spread", "GFLOP/s", "peak", "GB/s", "read") +
         "\n";
}

std::string bench_table_row(const BenchRow& row, const BenchPeaks& peaks) {
  const Shape& s = row.shape;
  const auto line = [&](const std::string& who, const std::vector<std::string>& figures) {
    std::string text = fmt::format(fmt::runtime(kColumns), type_text(s), s.batch, s.seqlen_q, s.seqlen_k, heads_text(s),
                                   s.head_dim, row.causal ? "yes" : "no", name(row.pass), who, figures[0], figures[1],
                                   figures[2], figures[3], figures[4], figures[5]);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  if (!row.refusal.empty()) return line(name(row.backend), {"–", "", "", "", "", ""}) + " " + row.refusal + "\n";
  const double spread = (row.timing.quartile3 - row.timing.quartile1) / row.timing.median;
  return line(row.plan.implementation, {time_text(row.timing.median), fmt::format("{:.0f}%", 100 * spread),
                                        fmt::format("{:.4g}", flops_per_second(row) / 1e9),
                                        share_text(flops_per_second(row), peak_flops(row, peaks)),
                                        fmt::format("{:.3g}", bytes_per_second(row) / 1e9),
                                        share_text(bytes_per_second(row), peaks.measured.memory_bandwidth)}) +
         "\n";
}

std::string bench_json(const std::vector<BenchRow>& rows, const BenchPeaks& peaks) {
  nlohmann::ordered_json json;
  json["version"] = version();
  json["peaks"] = {{"num_threads", peaks.num_threads},
                   {"f32_gflop_per_second", peaks.measured.f32_flops / 1e9},
                   {"f64_gflop_per_second", peaks.measured.f64_flops / 1e9},
                   {"memory_read_gbyte_per_second", peaks.measured.memory_bandwidth / 1e9}};
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    const Shape& s = row.shape;
    nlohmann::ordered_json entry = {{"batch", s.batch},
                                    {"seqlen_q", s.seqlen_q},
                                    {"seqlen_k", s.seqlen_k},
                                    {"num_heads_q", s.heads},
                                    {"num_heads_kv", s.kv_heads},
                                    {"head_dim", s.head_dim},
                                    {"head_dim_v", s.head_dim_v},
                                    {"page_size", s.page_size},
                                    {"dtype", onchip::name(s.dtype)},
                                    {"kv_dtype", onchip::name(s.kv_dtype)},
                                    {"causal", row.causal},
                                    {"pass", name(row.pass)},
                                    {"backend", name(row.backend)}};
    if (row.refusal.empty()) {
      entry["implementation"] = row.plan.implementation;
      entry["num_threads"] = row.plan.num_threads;
      entry["seconds"] = {{"median", row.timing.median},
                          {"quartile1", row.timing.quartile1},
                          {"quartile3", row.timing.quartile3},
                          {"runs", row.timing.runs}};
      entry["gflop_per_second"] = flops_per_second(row) / 1e9;
      entry["share_of_peak_flops"] = flops_per_second(row) / peak_flops(row, peaks);
      entry["predicted_gbyte_per_second"] = bytes_per_second(row) / 1e9;
    } else {
      entry["refusal"] = row.refusal;
    }
    json["rows"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace onchip::cli
