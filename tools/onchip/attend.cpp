// onchip attend: attention over tensors from files.
#include <cstdio>
#include <memory>

#include "onchip/attention_options.hpp"
#include "onchip/commands.hpp"
#include "onchip/compare.hpp"
#include "onchip/device_problem.hpp"
#include "onchip/input_error.hpp"
#include "onchip/io/output_file.hpp"
#include "onchip/io/safetensors.hpp"
#include "onchip/measure.hpp"
#include "onchip/results.hpp"
#include "onchip/tensor_inputs.hpp"

namespace onchip::cli {
namespace {

constexpr const char* kFooter =
    "The output holds o and lse and, where dout is given, dq, dk, dv, dbias and dsink. It appears whole or not at "
    "all.\n"
    "Examples\n"
    "  onchip attend in.safetensors -o out.safetensors --causal\n"
    "  onchip attend in.safetensors -o out.safetensors --window 256,0 --softcap 30\n"
    "  onchip attend --q q.npy --k k.npy --v v.npy --mask mask.npy -o out.safetensors\n"
    "  onchip attend in.safetensors --causal --compare standard\n"
    "  onchip attend --q q.npy --k k.npy --v v.npy --dout dout.npy -o gradients.safetensors --backend standard";

struct Options {
  TensorInputOptions inputs;
  AttentionOptions attention;
  std::string output;
  std::string compare;
  bool json = false;
};

/// Refuses what plan() refuses. With the cuda backend, contents are checked where they are first: in host memory.
void check_problem(Attention problem, Pass pass) {
  if (problem.backend == Backend::cuda) {
    static_cast<void>(plan(planned_on_gpu(problem), pass));
    problem.backend = Backend::automatic;
    problem.at_least.clear();
  }
  static_cast<void>(plan(problem, pass));
}

Plan run_on_gpu(const Attention& problem, Pass pass) {
  const DeviceProblem copied(problem);
  Plan ran = pass == Pass::forward ? forward(copied.args()) : backward(copied.args());
  copied.read_results();
  return ran;
}

/// Runs one pass and returns a phrase about it.
std::string run(const Attention& problem, Pass pass) {
  Plan ran;
  const double seconds = seconds_of([&] {
    if (problem.backend == Backend::cuda)
      ran = run_on_gpu(problem, pass);
    else
      ran = pass == Pass::forward ? forward(problem) : backward(problem);
  });
  return fmt::format("{} by {} in {}", name(pass), ran.implementation, time_text(seconds));
}

void write(const std::string& path, const Results& results) {
  OutputFile file(path);
  write_safetensors(file, results.tensors());
  file.commit();
}

void check_usage(const Options& options) {
  if (!options.inputs.any()) refuse("no input, expected IN.safetensors or --q, --k and --v FILE.npy");
  if (options.output.empty() && options.compare.empty())
    refuse("--output: missing, expected a file to write (only --compare goes without)");
  if (options.json && options.compare.empty()) refuse("--json: given without --compare");
  if (!options.output.empty()) check_writable_path(options.output);
}

void attend(const Options& options) {
  check_usage(options);
  const TensorInputs inputs = options.inputs.read();
  Attention problem = inputs.attention();
  options.attention.apply(problem);

  const bool gradients = problem.dout.present();
  std::vector<Pass> passes = {Pass::forward};
  if (gradients) passes.push_back(Pass::backward);
  options.attention.check_at_least(problem, passes);
  for (const Pass pass : passes) check_problem(options.attention.for_pass(problem, pass), pass);

  if (!options.compare.empty()) {
    const Comparison done = compare(problem, options.attention, parse_backend("--compare", options.compare));
    if (!options.output.empty()) write(options.output, *done.results);
    std::fputs((options.json ? to_json(done) : to_text(done)).c_str(), stdout);
    return;
  }
  const Results results(problem, gradients);
  std::string summary;
  for (const Pass pass : passes)
    summary += (summary.empty() ? "" : ", ") + run(options.attention.for_pass(problem, pass), pass);
  write(options.output, results);
  std::fputs((summary + "\n").c_str(), stdout);
}

}  // namespace

void add_attend(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("attend", "Attention, and its gradients, over tensors from files");
  command->footer(kFooter);
  command->add_option("-o,--output", options->output, "File for the results")->type_name("OUT.safetensors");
  command
      ->add_option(
          "--compare", options->compare,
          "Run this backend too (usually standard) and print error, time, extra memory and predicted traffic of "
          "both")
      ->type_name("NAME");
  command->add_flag("--json", options->json, "Print the comparison as JSON");
  options->inputs.add(*command);
  options->attention.add_function(*command);
  options->attention.add_execution(*command);
  command->callback([options] { attend(*options); });
}

}  // namespace onchip::cli
