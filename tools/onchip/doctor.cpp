// onchip doctor: what this machine has, what that enables, what is missing and how to get it.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/threads.hpp"
#include "cpu/host.hpp"
#include "cpu/measure.hpp"
#include "onchip/commands.hpp"
#include "onchip/device_problem.hpp"
#include "onchip/doctor_report.hpp"
#include "onchip/onchip.hpp"
#include "onchip/shared_library.hpp"

namespace onchip::cli {
namespace {

constexpr const char* kFooter =
    "Examples\n"
    "  onchip doctor\n"
    "  onchip doctor --measure     also the peaks of this CPU, which takes a few seconds\n"
    "  onchip doctor --json";

struct Options {
  bool measure = false;
  bool json = false;
};

/// libonchip has loaded it, whichever of its packages is installed.
BlasFacts blas_facts() {
  BlasFacts facts;
  const SharedLibrary blas("libopenblas.so.0");
  if (const auto config = blas.function<char*()>("openblas_get_config")) facts.config = config();
  if (const auto kernel = blas.function<char*()>("openblas_get_corename")) facts.kernel = kernel();
  if (const char* forced = std::getenv("OPENBLAS_CORETYPE")) facts.forced = forced;
  return facts;
}

/// What the library itself says of tensors on the first GPU.
std::string cuda_refusal() {
  Attention problem;
  problem.q = problem.k = problem.v = contiguous(static_cast<void*>(nullptr), DType::bf16, {1, 1, 1, 64});
  problem.backend = Backend::cuda;
  try {
    static_cast<void>(plan(planned_on_gpu(problem), Pass::forward));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void print_findings(const Options& options) {
  DoctorReport report;
  report.version = version();
  report.cpu_name = cpu::cpu_name();
  const cpu::CoreCount cores = cpu::core_count();
  report.usable_cores = cores.usable;
  report.online_cores = cores.online;
  report.threads = available_threads();
  report.caches = cpu::host_caches();
  report.memory_bytes = cpu::memory_bytes();
  report.chosen_isa = cpu::chosen_isa();
  report.supported_isas = cpu::supported_isas();
  report.compiled_isas = cpu::compiled_isas();
  report.blas = blas_facts();
  report.nvidia = find_nvidia_parts();
  report.cuda_refusal = cuda_refusal();
  if (options.measure) report.peaks = {cpu::measure_peaks(1), cpu::measure_peaks(report.threads)};
  const std::string text = options.json ? doctor_json(report) : doctor_text(report);
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("doctor", "What this machine has, what that enables, what is missing and how to get it");
  command->footer(kFooter);
  command->add_flag("--measure", options->measure, "Measure the peaks of this CPU");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { print_findings(*options); });
}

}  // namespace onchip::cli
