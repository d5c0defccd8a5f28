// Device memory and kernels ahead of time, against the fake driver and compiler.
#include <filesystem>

#include "cuda/fake_fixture.hpp"
#include "onchip/gpu.hpp"

namespace onchip::test {
namespace {

class Front : public FakeCuda {
 protected:
  template <typename Call>
  std::string error_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Front, MemoryHoldsWhatWasWritten) {
  {
    DeviceMemory memory(1, 5);
    memory.write("abcde", 5);
    DeviceMemory moved = std::move(memory);
    char text[6] = {};
    moved.read(text, 5);
    EXPECT_STREQ(text, "abcde");
    DeviceMemory other(1, 3);
    other = std::move(moved);
    EXPECT_EQ(fake->allocations, 2);
    synchronize(1);
  }
  EXPECT_EQ(fake->allocations, 0);
  EXPECT_EQ(fake->context_depth, 0);
  EXPECT_EQ(DeviceMemory(0, 0).data(), nullptr) << "nothing is allocated for no bytes";
}

TEST_F(Front, FailuresAreErrors) {
  DeviceMemory memory(0, 4);
  char bytes[4] = {};
  fake->failure_code = 2;
  fake->failing_call = "cuMemAlloc_v2";
  EXPECT_NE(error_of([] { DeviceMemory(0, 10); }).find("cuMemAlloc failed"), std::string::npos);
  fake->failing_call = "cuMemcpyHtoD_v2";
  EXPECT_NE(error_of([&] { memory.write(bytes, 4); }).find("cuMemcpyHtoD failed"), std::string::npos);
  fake->failing_call = "cuMemcpyDtoH_v2";
  EXPECT_NE(error_of([&] { memory.read(bytes, 4); }).find("cuMemcpyDtoH failed"), std::string::npos);
  fake->failing_call = "cuCtxSynchronize";
  EXPECT_NE(error_of([] { synchronize(0); }).find("cuCtxSynchronize failed"), std::string::npos);
  fake->failing_call = nullptr;
  EXPECT_NE(error_of([] { DeviceMemory(7, 10); }).find("device: 7, expected 0 to 1"), std::string::npos);
  EXPECT_EQ(fake->context_depth, 0);
}

Attention problem() {
  Attention a;
  a.q = a.k = a.v = contiguous(static_cast<void*>(nullptr), DType::bf16, {1, 256, 4, 64});
  return a;
}

TEST_F(Front, CompiledKernelsServeLaunchesWithoutACompiler) {
  const TemporaryFolder kernels;
  fake->compile_log = "ptxas . 8 bytes stack frame, 0 bytes spill stores";
  const std::vector<CompiledKernel> made = compile(problem(), Pass::forward, "sm_90a", kernels.root());
  ASSERT_EQ(made.size(), 4u) << "Hopper's kernel, whole results, partial ones, and their merging";
  EXPECT_TRUE(std::filesystem::exists(made[0].path)) << made[0].path;
  ASSERT_EQ(made[0].complaints.size(), 1u);

  fake->capability = 90;
  setenv("ONCHIP_KERNELS", kernels.root().c_str(), 1);
  setenv("ONCHIP_CACHE", "", 1);
  Attention a = problem();
  a.o = a.q;
  for (Tensor* tensor : {&a.q, &a.k, &a.v, &a.o}) tensor->data = reinterpret_cast<void*>(0x10000);
  a.device = 0;
  forward(a);
  EXPECT_EQ(fake->launches, 1);
  EXPECT_EQ(fake->compilations, 4) << "the launch compiled again";
  EXPECT_EQ(made[0].name, fake->last.kernel);
}

TEST_F(Front, CompileNamesWhatItRefuses) {
  const auto error_for = [&](Pass pass, const char* arch) {
    return error_of([&] { compile(problem(), pass, arch, folder_.root()); });
  };
  EXPECT_NE(error_for(Pass::forward, "sm_42").find("arch: 'sm_42', expected one of sm_80"), std::string::npos);
  EXPECT_NE(error_for(Pass::backward, "sm_90a").find("pass: backward"), std::string::npos);
}

}  // namespace
}  // namespace onchip::test
