// onchip doctor: what it looks for, what it advises, and the command itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "onchip/doctor_report.hpp"
#include "onchip/nvidia_parts.hpp"
#include "tools/process.hpp"
#include "tools/temporary_folder.hpp"

namespace onchip::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

void write_file(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << content;
}

cli::DoctorReport healthy() {
  cli::DoctorReport report;
  report.usable_cores = report.online_cores = report.threads = 4;
  report.chosen_isa = "AVX2";
  report.blas.config = "OpenBLAS 0.3 USE_OPENMP";
  return report;
}

bool mentions(const std::vector<cli::Advice>& list, const std::string& text) {
  for (const cli::Advice& a : list)
    if (a.what.find(text) != std::string::npos || a.how.find(text) != std::string::npos) return true;
  return false;
}

TEST(DoctorAdvice, NothingWhereNothingIsMissing) { EXPECT_TRUE(advice(healthy()).empty()); }

TEST(DoctorAdvice, NamesWhatTheCpuLacks) {
  cli::DoctorReport report = healthy();
  report.chosen_isa = "EMU128";
  report.threads = 2;
  report.blas.config = "OpenBLAS 0.3 MAX_THREADS=64";
  const auto list = advice(report);
  EXPECT_EQ(list.size(), 3u);
  EXPECT_TRUE(mentions(list, "AVX2"));
  EXPECT_TRUE(mentions(list, "2 of 4 cores"));
  EXPECT_TRUE(mentions(list, "libopenblas0-openmp"));
  report = healthy();
  report.chosen_isa = "SCALAR";
  EXPECT_EQ(advice(report).size(), 1u);
}

TEST(DoctorAdvice, NvidiaPartsOnlyWhereThereIsADevice) {
  cli::DoctorReport report = healthy();
  report.nvidia.pci_devices = 1;
  auto list = advice(report);
  EXPECT_TRUE(mentions(list, "nvidia-driver"));
  EXPECT_TRUE(mentions(list, "nvidia-cuda-nvrtc-cu12"));
  EXPECT_TRUE(mentions(list, "nvidia-cuda-cupti-cu12"));
  report.nvidia.driver = cli::FoundLibrary{"/lib/libcuda.so.1", "12.4"};
  report.nvidia.nvrtc = report.nvidia.cupti = report.nvidia.driver;
  EXPECT_TRUE(advice(report).empty());
  report.nvidia.driver_fault = "cuInit returned error 999";
  list = advice(report);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_TRUE(mentions(list, "999"));
}

TEST(NvidiaParts, CountsDisplaysAndAcceleratorsOfTheVendor) {
  TemporaryFolder folder;
  const auto add = [&](const std::string& slot, const std::string& vendor, const std::string& device_class) {
    write_file(fs::path(folder.path(slot)) / "vendor", vendor + "\n");
    write_file(fs::path(folder.path(slot)) / "class", device_class + "\n");
  };
  EXPECT_EQ(cli::count_nvidia_devices(folder.path("")), 0);
  EXPECT_EQ(cli::count_nvidia_devices(folder.path("missing")), 0);
  add("0", "0x10de", "0x030200");
  add("1", "0x10de", "0x120000");
  add("2", "0x10de", "0x040300");  // its sound output
  add("3", "0x8086", "0x030000");
  EXPECT_EQ(cli::count_nvidia_devices(folder.path("")), 2);
}

TEST(NvidiaParts, TakesTheNewestOfSeveralLibraries) {
  TemporaryFolder folder;
  EXPECT_EQ(cli::newest_library(folder.path(""), "libnvrtc"), fs::path());
  for (const char* name : {"libnvrtc.so", "libnvrtc.so.9", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.source",
                           "libnvrtc-builtins.so.13"})
    write_file(folder.path(name), "");
  EXPECT_EQ(cli::newest_library(folder.path(""), "libnvrtc").filename(), "libnvrtc.so.12");
}

TEST(NvidiaParts, LooksInTheFoldersOfToolkitsAndPythonPackages) {
  TemporaryFolder folder;
  const fs::path toolkit = folder.path("toolkit"), environment = folder.path("environment");
  const fs::path packages = environment / "lib" / "python3.11" / "site-packages" / "nvidia";
  const std::vector<fs::path> expected = {toolkit / "lib64", packages / "cuda_nvrtc" / "lib",
                                          packages / "cu13" / "lib"};
  for (const fs::path& path : expected) fs::create_directories(path);
  setenv("CUDA_HOME", toolkit.c_str(), 1);
  setenv("VIRTUAL_ENV", environment.c_str(), 1);
  const std::vector<fs::path> found = cli::cuda_library_folders();
  for (const fs::path& path : expected) EXPECT_NE(std::find(found.begin(), found.end(), path), found.end()) << path;
  unsetenv("CUDA_HOME");
  unsetenv("VIRTUAL_ENV");
}

TEST(DoctorCommand, TextAndJsonSayTheSame) {
  const Outcome text = run_onchip({"doctor"});
  EXPECT_EQ(text.status, 0) << text.err;
  const Outcome outcome = run_onchip({"doctor", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_NE(text.out.find(json["cpu"]["name"].get<std::string>()), std::string::npos);
  EXPECT_NE(text.out.find(json["cpu"]["isa"].get<std::string>()), std::string::npos);
  EXPECT_NE(json["openblas"]["config"].get<std::string>().find("OpenBLAS"), std::string::npos);
  EXPECT_GE(json["cpu"]["threads"], 1);
  EXPECT_TRUE(json["measured"].is_null());
  for (const char* part : {"What this enables", "What is missing", "NVRTC", "CUPTI"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
}

TEST(DoctorCommand, FindsADriverAndItsDevices) {
  setenv("ONCHIP_CUDA_DRIVER", ONCHIP_FAKE_CUDA, 1);
  setenv("ONCHIP_NVRTC", ONCHIP_FAKE_CUDA, 1);
  const Outcome works = run_onchip({"doctor", "--json"});
  setenv("ONCHIP_FAKE_FAILURE", "cuInit", 1);
  const Outcome fails = run_onchip({"doctor", "--json"});
  for (const char* variable : {"ONCHIP_FAKE_FAILURE", "ONCHIP_NVRTC", "ONCHIP_CUDA_DRIVER"}) unsetenv(variable);
  ASSERT_EQ(works.status, 0) << works.err;
  const Json nvidia = Json::parse(works.out)["nvidia"];
  EXPECT_EQ(nvidia["driver"]["version"], "13.0");
  EXPECT_EQ(nvidia["driver_fault"], "");
  ASSERT_EQ(nvidia["gpus"].size(), 2u);
  EXPECT_EQ(nvidia["gpus"][0]["name"], "Fake GPU");
  EXPECT_EQ(nvidia["gpus"][0]["compute_capability"], "9.0");
  EXPECT_EQ(nvidia["gpus"][0]["memory_bytes"].get<std::int64_t>(), std::int64_t{141} << 30);
  EXPECT_EQ(nvidia["nvrtc"]["version"], "13.0");
  ASSERT_EQ(fails.status, 0) << fails.err;
  const Json faulty = Json::parse(fails.out)["nvidia"];
  EXPECT_NE(faulty["driver_fault"].get<std::string>().find("cuInit failed with FAKE_ERROR (999)"), std::string::npos);
  EXPECT_TRUE(faulty["gpus"].empty());
}

TEST(DoctorCommand, MeasuresWhenAsked) {
  const Outcome outcome = run_onchip({"doctor", "--measure", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  for (const char* threads : {"one_thread", "all_threads"})
    EXPECT_GT(json["measured"][threads]["f32_flops_per_second"].get<double>(), 0);
}

TEST(DoctorCommand, Refusals) { expect_refusal(run_onchip({"doctor", "--heal"}), {"--heal"}); }

}  // namespace
}  // namespace onchip::test
