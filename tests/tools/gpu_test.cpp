// The command line and a GPU that is not there, or that is a fake.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tools/process.hpp"
#include "tools/temporary_folder.hpp"
#include "tools/tensor_files.hpp"

namespace onchip::test {
namespace {

class GpuCommands : public testing::Test {
 protected:
  void use_fake_gpu() {
    setenv("ONCHIP_CUDA_DRIVER", ONCHIP_FAKE_CUDA, 1);
    setenv("ONCHIP_NVRTC", ONCHIP_FAKE_CUDA, 1);
    setenv("ONCHIP_CACHE", "", 1);
  }

  TemporaryFolder folder_;
};

TEST_F(GpuCommands, AttendSaysWhyThereIsNoGpu) {
  setenv("ONCHIP_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
  const std::string in = folder_.write("in", safetensors_file(small_tensors()));
  expect_refusal(run_onchip({"attend", in, "-o", folder_.path("out"), "--backend", "cuda"}),
                 {"CUDA driver: not found", "/nonexistent/libcuda.so.1"});
  EXPECT_EQ(folder_.files(), std::vector<std::string>{"in"});
}

TEST_F(GpuCommands, BenchSaysWhyThereIsNoGpu) {
  setenv("ONCHIP_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
  expect_refusal(run_onchip({"bench", "--backend", "cuda", "--seqlen", "8"}), {"CUDA driver: not found"});
}

TEST_F(GpuCommands, AttendCopiesThereAndBack) {
  use_fake_gpu();
  const std::string in = folder_.write("in", safetensors_file(small_tensors()));
  const Outcome outcome = run_onchip({"attend", in, "-o", folder_.path("out"), "--backend", "cuda"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("forward by cuda_portable_forward"), std::string::npos) << outcome.out;
  EXPECT_EQ(folder_.files().size(), 2u);
}

TEST_F(GpuCommands, ExplainKnowsTheGpu) {
  use_fake_gpu();
  const Outcome outcome = run_onchip({"explain", "--backend", "cuda", "--dtype", "bf16"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("forward pass: cuda_portable_forward"), std::string::npos) << outcome.out;
}

TEST_F(GpuCommands, CompileWritesAKernel) {
  use_fake_gpu();
  const Outcome outcome = run_onchip(
      {"compile", "--arch", "sm_90a", "--head-dim", "128", "--dtype", "bf16", "-o", folder_.path("kernels")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("portable_forward_bf16_d128"), std::string::npos) << outcome.out;
}

TEST_F(GpuCommands, CompileNamesWhatItRefuses) {
  use_fake_gpu();
  expect_refusal(run_onchip({"compile", "--arch", "sm_42", "-o", folder_.path("kernels")}), {"sm_42", "sm_90a"});
  expect_refusal(run_onchip({"compile", "-o", folder_.path("kernels")}), {"--arch"});
  expect_refusal(run_onchip({"compile", "--arch", "sm_90a", "--dtype", "f64", "-o", folder_.path("kernels")}), {"f64"});
}

}  // namespace
}  // namespace onchip::test
