// onchip compile: kernels for a GPU that need not be in this machine.
#include <cstdio>
#include <memory>

#include "onchip/attention_options.hpp"
#include "onchip/commands.hpp"
#include "onchip/gpu.hpp"
#include "onchip/input_error.hpp"
#include "onchip/shape_options.hpp"

namespace onchip::cli {
namespace {

constexpr const char* kFooter =
    "Processes that have ONCHIP_KERNELS name the folder take kernels from it, and need no compiler for those. A "
    "kernel\n"
    "is made for one problem: its head dimensions, types, masks and layout, not its lengths (but few queries get\n"
    "another kernel than many). Needs NVRTC here, and no GPU.\n"
    "Examples\n"
    "  onchip compile --arch sm_90a --head-dim 128 --dtype bf16 --causal -o kernels\n"
    "  onchip compile --arch sm_80 --seqlen-q 1 --heads 32 --kv-heads 8 --head-dim 128 --page-size 16 --kv-dtype i8 -o "
    "kernels";

struct Options {
  ShapeOptions shape;
  AttentionOptions attention;
  std::string arch;
  std::string folder;
  bool tf32 = false;
};

void compile_kernels(const Options& options) {
  const ShapedProblem shaped = options.shape.problem();
  Attention problem = shaped.attention;
  options.attention.apply(problem);
  problem.allow_tf32 = options.tf32;
  std::size_t complaints = 0;
  for (const CompiledKernel& kernel : compile(problem, Pass::forward, options.arch, options.folder)) {
    std::fputs((kernel.path + "\n").c_str(), stdout);
    for (const std::string& complaint : kernel.complaints)
      std::fputs((kernel.name + ": " + complaint + "\n").c_str(), stderr);
    complaints += kernel.complaints.size();
  }
  if (complaints > 0)
    throw std::runtime_error(fmt::format("{} complaints of the assembler: the kernels are slow", complaints));
}

}  // namespace

void add_compile(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("compile", "Compile the GPU kernels of a problem ahead of time");
  command->footer(kFooter);
  command->add_option("--arch", options->arch, "Architecture: sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a, …")
      ->required()
      ->type_name("NAME");
  command->add_option("-o,--output", options->folder, "Folder for the kernels, made where it is missing")
      ->required()
      ->type_name("DIR");
  command->add_flag("--tf32", options->tf32, "f32 products in TF32");
  options->shape.add(*command);
  options->attention.add_function(*command);
  command->callback([options] { compile_kernels(*options); });
}

}  // namespace onchip::cli
