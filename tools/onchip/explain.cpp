// onchip explain: which implementation a problem would get, with what, and why not the others.
#include <cstdio>
#include <memory>

#include "onchip/attention_options.hpp"
#include "onchip/commands.hpp"
#include "onchip/device_problem.hpp"
#include "onchip/input_error.hpp"
#include "onchip/shape_options.hpp"
#include "onchip/tensor_inputs.hpp"

namespace onchip::cli {
namespace {

constexpr const char* kFooter =
    "Examples\n"
    "  onchip explain --seqlen-q 4096 --heads 16 --head-dim 128 --dtype bf16 --causal\n"
    "  onchip explain --seqlen-q 1 --seqlen-k 8192 --heads 32 --kv-heads 8 --head-dim 128 --page-size 64\n"
    "  onchip explain --pass backward --with bias --json\n"
    "  onchip explain in.safetensors --causal";

struct Options {
  TensorInputOptions inputs;
  ShapeOptions shape;
  AttentionOptions attention;
  std::string pass = "forward";
  bool json = false;
};

Pass parse_pass(const std::string& text) {
  if (text == "forward") return Pass::forward;
  if (text == "backward") return Pass::backward;
  refuse("--pass: '{}', expected forward or backward", text);
}

void print(const Options& options, Attention problem) {
  options.attention.apply(problem);
  problem.at_least = options.attention.at_least;
  const Pass pass = parse_pass(options.pass);
  if (problem.backend == Backend::cuda) problem = planned_on_gpu(problem);
  std::fputs((options.json ? explain_json(problem, pass) + "\n" : explain(problem, pass)).c_str(), stdout);
}

void explain_problem(const Options& options) {
  if (!options.inputs.any()) return print(options, options.shape.problem().attention);
  if (const std::string given = options.shape.first_given(); !given.empty())
    refuse("{}: given together with a file, which has a shape already", given);
  print(options, options.inputs.read().attention());
}

}  // namespace

void add_explain(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "Which implementation a problem would get, and why not the others");
  command->footer(kFooter);
  command->add_option("--pass", options->pass, "forward or backward")->capture_default_str()->type_name("PASS");
  command->add_flag("--json", options->json, "Print JSON");
  options->inputs.add(*command);
  options->shape.add(*command);
  options->attention.add_function(*command);
  options->attention.add_execution(*command);
  command->callback([options] { explain_problem(*options); });
}

}  // namespace onchip::cli
