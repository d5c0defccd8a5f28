#include "onchip/attention_options.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "onchip/input_error.hpp"

namespace onchip::cli {
namespace {

constexpr std::pair<const char*, Backend> kBackends[] = {
    {"auto", Backend::automatic}, {"cpu", Backend::cpu}, {"cuda", Backend::cuda}, {"standard", Backend::standard}};

constexpr DType kDTypes[] = {DType::f64,  DType::f32, DType::bf16, DType::f16,    DType::e4m3,
                             DType::e5m2, DType::i8,  DType::i32,  DType::boolean};

bool parse_integer(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

void parse_window(const std::string& text, Attention& problem) {
  const std::size_t comma = text.find(',');
  const std::string_view view = text;
  if (comma == std::string::npos || !parse_integer(view.substr(0, comma), problem.window_left) ||
      !parse_integer(view.substr(comma + 1), problem.window_right))
    refuse("--window: '{}', expected LEFT,RIGHT: two whole numbers, −1 for no bound (such as --window 128,0)", text);
}

/// The names of every implementation of a pass, fastest first: what plan() names, chosen or rejected.
std::vector<std::string> implementation_names(const Attention& problem, Pass pass) {
  const Plan planned = plan(problem, pass);
  std::vector<std::string> names;
  for (const Rejection& rejection : planned.rejections) names.push_back(rejection.implementation);
  names.insert(names.begin() + planned.num_faster, planned.implementation);
  return names;
}

}  // namespace

const char* name(Backend backend) {
  for (const auto& [text, value] : kBackends)
    if (value == backend) return text;
  return "unknown";
}

const char* name(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }

Backend parse_backend(const std::string& option, const std::string& text) {
  for (const auto& [known, value] : kBackends)
    if (text == known) return value;
  refuse("{}: '{}', expected auto, cpu, cuda or standard", option, text);
}

std::vector<std::string> split_list(const std::string& option, const std::vector<std::string>& lists) {
  std::vector<std::string> items;
  for (const std::string& list : lists)
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      if (end == begin) refuse("{}: '{}' has an empty place, expected values with commas between", option, list);
      items.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  return items;
}

std::vector<std::int64_t> split_integers(const std::string& option, const std::vector<std::string>& lists) {
  std::vector<std::int64_t> values;
  for (const std::string& item : split_list(option, lists))
    if (!parse_integer(item, values.emplace_back())) refuse("{}: '{}', expected whole numbers", option, item);
  return values;
}

DType parse_dtype(const std::string& option, const std::string& text) {
  for (const DType type : kDTypes)
    if (text == onchip::name(type)) return type;
  refuse("{}: '{}', expected f64, f32, bf16, f16, e4m3, e5m2 or i8", option, text);
}

void AttentionOptions::add_function(CLI::App& command) {
  constexpr const char* kGroup = "The function";
  command
      .add_flag("--causal", causal, "A query sees the keys up to its own position; the last query sees the last key")
      ->group(kGroup);
  command
      .add_option("--window", window,
                  "Keys that a query sees to the left and right of its position, −1 for no bound (default −1,−1)")
      ->type_name("L,R")
      ->group(kGroup);
  command.add_option("--scale", scale, "Factor of q·k (default 1/√D)")->type_name("X")->group(kGroup);
  command.add_option("--softcap", softcap, "Scores become C·tanh(score/C) (default 0: off)")
      ->type_name("C")
      ->group(kGroup);
  command
      .add_flag("--top-left", top_left,
                "Query i stands at key i, as in PyTorch's is_causal, instead of at i + Sk − Sq (default: bottom right)")
      ->group(kGroup);
}

void AttentionOptions::add_execution(CLI::App& command) {
  constexpr const char* kGroup = "Who computes";
  command.add_option("--backend", backend, "auto (fastest that accepts), cpu (tiled), cuda or standard (textbook)")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--at-least", at_least,
                  "Refuse to run anything slower than this implementation (names: onchip explain)")
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_flag("--batch-invariant", batch_invariant,
                "A sequence's results do not depend on the others of its batch, to the last bit")
      ->group(kGroup);
  command.add_option("--threads", num_threads, "CPU threads (default 0: all that this process may use)")
      ->type_name("N")
      ->group(kGroup);
}

void AttentionOptions::apply(Attention& problem) const {
  problem.causal = causal;
  if (!window.empty()) parse_window(window, problem);
  problem.softmax_scale = scale;
  problem.softcap = softcap;
  problem.alignment = top_left ? Alignment::top_left : Alignment::bottom_right;
  problem.backend = parse_backend("--backend", backend);
  problem.num_threads = num_threads;
  problem.batch_invariant = batch_invariant;
}

Attention AttentionOptions::for_pass(Attention problem, Pass pass) const {
  if (at_least.empty()) return problem;
  const std::vector<std::string> names = implementation_names(problem, pass);
  if (std::find(names.begin(), names.end(), at_least) != names.end()) problem.at_least = at_least;
  return problem;
}

void AttentionOptions::check_at_least(const Attention& problem, std::span<const Pass> passes) const {
  if (at_least.empty()) return;
  std::string known;
  for (const Pass pass : passes)
    for (const std::string& implementation : implementation_names(problem, pass)) {
      if (implementation == at_least) return;
      known += (known.empty() ? "" : ", ") + implementation;
    }
  refuse("--at-least: '{}', expected one of {}", at_least, known);
}

}  // namespace onchip::cli
