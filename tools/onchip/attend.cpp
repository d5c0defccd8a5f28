// onchip attend: attention over tensors from files.
#include <chrono>
#include <cstdio>
#include <memory>

#include "onchip/attention_options.hpp"
#include "onchip/commands.hpp"
#include "onchip/input_error.hpp"
#include "onchip/io/output_file.hpp"
#include "onchip/io/safetensors.hpp"
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
    "  onchip attend --q q.npy --k k.npy --v v.npy --dout dout.npy -o gradients.safetensors --backend standard";

struct Options {
  TensorInputOptions inputs;
  AttentionOptions attention;
  std::string output;
};

/// Runs one pass and returns a phrase about it.
std::string run(const Attention& problem, Pass pass) {
  const auto start = std::chrono::steady_clock::now();
  const Plan ran = pass == Pass::forward ? forward(problem) : backward(problem);
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  return fmt::format("{} by {} in {:.3g} ms", name(pass), ran.implementation, elapsed.count());
}

void attend(const Options& options) {
  if (!options.inputs.any()) refuse("no input, expected IN.safetensors or --q, --k and --v FILE.npy");
  check_writable_path(options.output);
  const TensorInputs inputs = options.inputs.read();
  Attention problem = inputs.attention();
  options.attention.apply(problem);

  const bool gradients = problem.dout.present();
  std::vector<Pass> passes = {Pass::forward};
  if (gradients) passes.push_back(Pass::backward);
  options.attention.check_at_least(problem, passes);
  for (const Pass pass : passes) static_cast<void>(plan(options.attention.for_pass(problem, pass), pass));

  const Results results(problem, gradients);
  std::string summary;
  for (const Pass pass : passes)
    summary += (summary.empty() ? "" : ", ") + run(options.attention.for_pass(problem, pass), pass);
  OutputFile file(options.output);
  write_safetensors(file, results.tensors());
  file.commit();
  std::fputs((summary + "\n").c_str(), stdout);
}

}  // namespace

void add_attend(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("attend", "Attention, and its gradients, over tensors from files");
  command->footer(kFooter);
  command->add_option("-o,--output", options->output, "File for the results")->type_name("OUT.safetensors")->required();
  options->inputs.add(*command);
  options->attention.add_function(*command);
  options->attention.add_execution(*command);
  command->callback([options] { attend(*options); });
}

}  // namespace onchip::cli
