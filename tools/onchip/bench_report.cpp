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

constexpr const char* kColumns = "{:<10}{:>5}{:>8}{:>8}{:>7}{:>5}{:>8} {:<9}{:<26}{:>11}{:>8}{:>10}{:>8}";

}  // namespace

std::string bench_table_header() {
  return fmt::format(fmt::runtime(kColumns), "type", "B", "Sq", "Sk", "heads", "D", "causal", "pass", "implementation",
                     "median", "spread", "GFLOP/s", "GB/s") +
         "\n";
}

std::string bench_table_row(const BenchRow& row) {
  const Shape& s = row.shape;
  const auto line = [&](const std::string& who, const std::string& time, const std::string& spread,
                        const std::string& flops, const std::string& bytes) {
    std::string text =
        fmt::format(fmt::runtime(kColumns), type_text(s), s.batch, s.seqlen_q, s.seqlen_k, heads_text(s), s.head_dim,
                    row.causal ? "yes" : "no", name(row.pass), who, time, spread, flops, bytes);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  if (!row.refusal.empty()) return line(name(row.backend), "–", "", "", "") + " " + row.refusal + "\n";
  const double seconds = row.timing.median;
  const double spread = (row.timing.quartile3 - row.timing.quartile1) / seconds;
  return line(row.plan.implementation, time_text(seconds), fmt::format("{:.1f}%", 100 * spread),
              fmt::format("{:.4g}", row.plan.predicted.flops / seconds / 1e9),
              fmt::format("{:.3g}", predicted_bytes(row.plan) / seconds / 1e9)) +
         "\n";
}

std::string bench_json(const std::vector<BenchRow>& rows) {
  nlohmann::ordered_json json;
  json["version"] = version();
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
      entry["gflop_per_second"] = row.plan.predicted.flops / row.timing.median / 1e9;
      entry["predicted_gbyte_per_second"] = predicted_bytes(row.plan) / row.timing.median / 1e9;
    } else {
      entry["refusal"] = row.refusal;
    }
    json["rows"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace onchip::cli
