// A Comparison as a table and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "onchip/compare.hpp"

namespace onchip::cli {
namespace {

constexpr const char* kUnknown = "not measured";

std::string row(const std::string& label, const std::string& chosen, const std::string& other,
                const std::string& ratio = "") {
  std::string line = fmt::format("  {:<32}{:>24}{:>24}{:>10}", label, chosen, other, ratio);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string ratio_text(double chosen, double other) {
  return chosen > 0 && other > 0 ? fmt::format("{:.3g}×", other / chosen) : "";
}

std::string peak_text(const PassReport& pass) {
  return pass.peak_bytes ? bytes_text(static_cast<double>(*pass.peak_bytes)) : kUnknown;
}

/// A row of one figure of every pass; the other column may not have run.
template <typename Figure>
std::string quantity(const std::string& label, const PassReport& chosen, const PassReport* other, Figure figure,
                     std::string (*text)(double)) {
  const double mine = figure(chosen);
  if (other == nullptr) return row(label, text(mine), "–");
  const double theirs = figure(*other);
  return row(label, text(mine), text(theirs), ratio_text(mine, theirs));
}

std::string pass_text(const PassReport& chosen, const PassReport* other) {
  std::string text = fmt::format("{} pass\n", name(chosen.plan.pass));
  text += row("implementation", chosen.plan.implementation, other ? other->plan.implementation : "–");
  text += quantity(
      fmt::format("time, median of {}", chosen.timing.runs), chosen, other,
      [](const PassReport& pass) { return pass.timing.median; }, time_text);
  text += quantity(
      "extra memory, planned", chosen, other,
      [](const PassReport& pass) { return static_cast<double>(pass.plan.workspace_bytes); }, bytes_text);
  text += row("extra memory, measured peak", peak_text(chosen), other ? peak_text(*other) : "–");
  text += quantity(
      "main memory traffic, predicted", chosen, other,
      [](const PassReport& pass) { return predicted_bytes(pass.plan); }, bytes_text);
  return text;
}

std::string error_text(const Difference* error) {
  return error ? fmt::format("{:.2e} / {:.2e}", error->absolute, error->relative) : "–";
}

nlohmann::ordered_json json_of(const PassReport& pass) {
  nlohmann::ordered_json json;
  json["pass"] = name(pass.plan.pass);
  json["implementation"] = pass.plan.implementation;
  json["seconds"] = {{"median", pass.timing.median},
                     {"quartile1", pass.timing.quartile1},
                     {"quartile3", pass.timing.quartile3},
                     {"runs", pass.timing.runs}};
  json["workspace_bytes"] = pass.plan.workspace_bytes;
  json["peak_bytes"] = pass.peak_bytes ? nlohmann::ordered_json(*pass.peak_bytes) : nlohmann::ordered_json(nullptr);
  json["predicted"] = {{"flops", pass.plan.predicted.flops},
                       {"main_memory_read_bytes", pass.plan.predicted.main_memory_read_bytes},
                       {"main_memory_write_bytes", pass.plan.predicted.main_memory_write_bytes}};
  return json;
}

nlohmann::ordered_json json_of(const ColumnReport& column) {
  nlohmann::ordered_json json;
  json["backend"] = name(column.backend);
  if (!column.refusal.empty()) json["refusal"] = column.refusal;
  json["passes"] = nlohmann::ordered_json::array();
  for (const PassReport& pass : column.passes) json["passes"].push_back(json_of(pass));
  json["errors"] = nlohmann::ordered_json::object();
  for (const Difference& error : column.errors)  // JSON has no infinity: results that differ in one are null
    json["errors"][error.tensor] = {{"max_absolute", error.absolute}, {"max_relative", error.relative}};
  return json;
}

}  // namespace

std::string to_text(const Comparison& comparison) {
  const bool both = comparison.other.refusal.empty();
  std::string text = row("", name(comparison.chosen.backend), name(comparison.other.backend), "ratio");
  for (std::size_t i = 0; i < comparison.chosen.passes.size(); ++i)
    text += pass_text(comparison.chosen.passes[i], both ? &comparison.other.passes[i] : nullptr);
  text += fmt::format("error against float64 ({}): largest |x − exact| / the same over 1 + |exact|\n",
                      comparison.reference);
  for (std::size_t i = 0; i < comparison.chosen.errors.size(); ++i)
    text += row(comparison.chosen.errors[i].tensor, error_text(&comparison.chosen.errors[i]),
                error_text(both ? &comparison.other.errors[i] : nullptr));
  if (!both) text += fmt::format("{} did not run: {}\n", name(comparison.other.backend), comparison.other.refusal);
  return text;
}

std::string to_json(const Comparison& comparison) {
  nlohmann::ordered_json json;
  json["reference"] = comparison.reference;
  json["chosen"] = json_of(comparison.chosen);
  json["other"] = json_of(comparison.other);
  return json.dump(2) + "\n";
}

}  // namespace onchip::cli
