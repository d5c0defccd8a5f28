// Options of the attention function and of who computes it, shared by the subcommands that take a problem.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>

#include "onchip/onchip.hpp"

namespace onchip::cli {

struct AttentionOptions {
  bool causal = false;
  bool top_left = false;
  std::string window;
  std::optional<double> scale;
  double softcap = 0.0;
  std::string backend = "auto";
  std::string at_least;
  bool batch_invariant = false;
  int num_threads = 0;

  /// --causal, --window, --scale, --softcap, --top-left
  void add_function(CLI::App& command);
  /// --backend, --at-least, --batch-invariant, --threads
  void add_execution(CLI::App& command);
  /// Copies everything but at_least, which names an implementation of one pass: see for_pass().
  void apply(Attention& problem) const;
  /// `problem` with at_least set if it names an implementation of `pass`.
  Attention for_pass(Attention problem, Pass pass) const;
  /// Refuses an at_least that names an implementation of none of `passes`.
  void check_at_least(const Attention& problem, std::span<const Pass> passes) const;
};

/// The values of a list option: "8,16", given once or more often. Refuses an empty place.
std::vector<std::string> split_list(const std::string& option, const std::vector<std::string>& lists);
std::vector<std::int64_t> split_integers(const std::string& option, const std::vector<std::string>& lists);

Backend parse_backend(const std::string& option, const std::string& text);
/// "auto", "cpu", "standard", "cuda"
const char* name(Backend backend);
DType parse_dtype(const std::string& option, const std::string& text);
const char* name(Pass pass);

}  // namespace onchip::cli
