#include "onchip/doctor_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace onchip::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string size_text(std::int64_t bytes) {
  if (bytes >= std::int64_t{1} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{} KiB", bytes >> 10);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string line(const std::string& label, const std::string& text) { return fmt::format("{:<12}{}\n", label, text); }

std::string cpu_text(const DoctorReport& r) {
  std::string text = line("CPU", r.cpu_name);
  text += line("", fmt::format("{} of {} cores may be used, {} threads", r.usable_cores, r.online_cores, r.threads));
  text +=
      line("", fmt::format("L1 {}, L2 {} a core; L3 {}; memory {}", size_text(r.caches.l1_bytes),
                           size_text(r.caches.l2_bytes), r.caches.l3_bytes > 0 ? size_text(r.caches.l3_bytes) : "none",
                           size_text(r.memory_bytes)));
  text += line("", fmt::format("vectors: {} (this CPU has {}; compiled for {})", r.chosen_isa, joined(r.supported_isas),
                               joined(r.compiled_isas)));
  return text;
}

std::string blas_text(const BlasFacts& blas) {
  if (blas.config.empty()) return line("OpenBLAS", "not found");
  return line("OpenBLAS", blas.config) +
         line("", "kernels for " + blas.kernel +
                      (blas.forced.empty() ? "" : ", forced by OPENBLAS_CORETYPE=" + blas.forced));
}

std::string nvidia_text(const NvidiaParts& n) {
  const auto library = [](const char* label, const std::optional<FoundLibrary>& found) {
    return line(label, found ? fmt::format("{}, {}", found->version, found->path) : "not found");
  };
  std::string text;
  if (n.driver)
    text += line("GPU driver", fmt::format("CUDA {}, {}{}", n.driver->version, n.driver->path,
                                           n.driver_fault.empty() ? "" : "; " + n.driver_fault));
  else
    text += line("GPU driver", n.pci_devices > 0 ? "not found" : "not found; no NVIDIA device on the PCI bus");
  for (const Gpu& gpu : n.gpus)
    text += line("GPU", fmt::format("{}, compute capability {}, {}", gpu.name, gpu.compute_capability,
                                    size_text(gpu.memory_bytes)));
  return text + library("NVRTC", n.nvrtc) + library("CUPTI", n.cupti);
}

std::string peaks_text(const MeasuredPeaks& peaks) {
  std::string text = fmt::format("\n{:<26}{:>12}{:>14}\n", "Measured", "one thread", "all threads");
  const auto row = [&](const char* label, double one, double all) {
    if (one > 0) text += fmt::format("  {:<24}{:>12.1f}{:>14.1f}\n", label, one / 1e9, all / 1e9);
  };
  const model::CpuPeaks &a = peaks.one_thread, &b = peaks.all_threads;
  row("multiply-add f32, GFLOP/s", a.f32_flops, b.f32_flops);
  row("multiply-add f64, GFLOP/s", a.f64_flops, b.f64_flops);
  row("read L1, GB/s", a.l1_bandwidth, b.l1_bandwidth);
  row("read L2, GB/s", a.l2_bandwidth, b.l2_bandwidth);
  row("read L3, GB/s", a.l3_bandwidth, b.l3_bandwidth);
  row("read memory, GB/s", a.memory_bandwidth, b.memory_bandwidth);
  return text;
}

Json library_json(const std::optional<FoundLibrary>& library) {
  if (!library) return nullptr;
  return {{"path", library->path}, {"version", library->version}};
}

Json peaks_json(const model::CpuPeaks& p) {
  return {{"f32_flops_per_second", p.f32_flops},   {"f64_flops_per_second", p.f64_flops},
          {"l1_bytes_per_second", p.l1_bandwidth}, {"l2_bytes_per_second", p.l2_bandwidth},
          {"l3_bytes_per_second", p.l3_bandwidth}, {"memory_bytes_per_second", p.memory_bandwidth}};
}

bool only_portable_vectors(const DoctorReport& r) { return r.chosen_isa == "EMU128" || r.chosen_isa == "SCALAR"; }

}  // namespace

std::vector<Advice> advice(const DoctorReport& r) {
  std::vector<Advice> list;
  const auto add = [&](const std::string& what, const std::string& how) { list.push_back({what, how}); };
  if (only_portable_vectors(r))
    add("vector instructions: the kernels run on the portable fallback",
        "a CPU with AVX2, AVX-512, NEON or SVE, or a virtual machine that shows them");
  if (r.usable_cores < r.online_cores || r.threads < r.usable_cores)
    add(fmt::format("threads: {} of {} cores are used", r.threads, r.online_cores),
        "raise OMP_NUM_THREADS, or the CPU affinity (taskset) of this process");
  if (!r.blas.config.empty() && r.blas.config.find("USE_OPENMP") == std::string::npos)
    add("OpenBLAS brings its own threads, which compete with ours in standard attention",
        "Debian: apt-get install libopenblas0-openmp");
  const NvidiaParts& n = r.nvidia;
  if (n.pci_devices == 0 && n.gpus.empty()) return list;
  if (!n.driver)
    add("NVIDIA driver: there is a device, but the loader finds no libcuda.so.1",
        "Debian (component non-free): apt-get install nvidia-driver libcuda1");
  else if (!n.driver_fault.empty())
    add("NVIDIA driver: " + n.driver_fault, "load its kernel module (modprobe nvidia), see dmesg");
  if (!n.nvrtc) add("NVRTC, which compiles kernels for the GPU", "pip install nvidia-cuda-nvrtc-cu12");
  if (!n.cupti)
    add("CUPTI, which reads hardware counters",
        "pip install nvidia-cuda-cupti-cu12, or Debian (component non-free): apt-get install libcupti11.8");
  return list;
}

std::string doctor_text(const DoctorReport& r) {
  std::string text = line("onchip", r.version) + cpu_text(r) + blas_text(r.blas) + nvidia_text(r.nvidia);
  if (r.peaks) text += peaks_text(*r.peaks);
  text += "\nWhat this enables\n";
  text += line("  cpu", fmt::format("yes: tiled attention with {} on {} threads", r.chosen_isa, r.threads));
  text += line("  standard", "yes: textbook attention, products by OpenBLAS");
  text += line("  cuda", r.cuda_refusal.empty() ? "yes: forward attention on the GPU" : "no: " + r.cuda_refusal);
  text += "\nWhat is missing\n";
  const std::vector<Advice> list = advice(r);
  if (list.empty()) text += "  nothing\n";
  for (const Advice& a : list) text += fmt::format("  {}\n    {}\n", a.what, a.how);
  return text;
}

std::string doctor_json(const DoctorReport& r) {
  Json json;
  json["version"] = r.version;
  json["cpu"] = {{"name", r.cpu_name},
                 {"usable_cores", r.usable_cores},
                 {"online_cores", r.online_cores},
                 {"threads", r.threads},
                 {"l1_bytes", r.caches.l1_bytes},
                 {"l2_bytes", r.caches.l2_bytes},
                 {"l3_bytes", r.caches.l3_bytes},
                 {"memory_bytes", r.memory_bytes},
                 {"isa", r.chosen_isa},
                 {"supported_isas", r.supported_isas},
                 {"compiled_isas", r.compiled_isas}};
  json["openblas"] = {{"config", r.blas.config}, {"kernel", r.blas.kernel}, {"forced_kernel", r.blas.forced}};
  json["nvidia"] = {{"pci_devices", r.nvidia.pci_devices},   {"driver", library_json(r.nvidia.driver)},
                    {"driver_fault", r.nvidia.driver_fault}, {"nvrtc", library_json(r.nvidia.nvrtc)},
                    {"cupti", library_json(r.nvidia.cupti)}, {"gpus", Json::array()}};
  for (const Gpu& gpu : r.nvidia.gpus)
    json["nvidia"]["gpus"].push_back(
        {{"name", gpu.name}, {"compute_capability", gpu.compute_capability}, {"memory_bytes", gpu.memory_bytes}});
  json["measured"] = nullptr;
  if (r.peaks)
    json["measured"] = {{"one_thread", peaks_json(r.peaks->one_thread)},
                        {"all_threads", peaks_json(r.peaks->all_threads)}};
  json["backends"] = {{"cpu", true}, {"standard", true}, {"cuda", r.cuda_refusal.empty()}};
  json["missing"] = Json::array();
  for (const Advice& a : advice(r)) json["missing"].push_back({{"what", a.what}, {"how", a.how}});
  return json.dump(2) + "\n";
}

}  // namespace onchip::cli
