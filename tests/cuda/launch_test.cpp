// The launch path without a GPU: what is launched, what is refused and why, and every failure of the driver.
#include <cstring>

#include "core/implementation.hpp"
#include "cuda/fake_fixture.hpp"
#include "cuda/host/driver.hpp"
#include "cuda/shared/portable_params.hpp"

namespace onchip::test {
namespace {

/// An address on the device. Nothing is there on this machine: a library that looked at it would crash.
void* device_address(int n) { return reinterpret_cast<void*>(0x10000 + 0x10000000 * static_cast<std::uintptr_t>(n)); }

Attention problem(DType type = DType::bf16) {
  Attention a;
  a.q = contiguous(device_address(1), type, {2, 300, 4, 64});
  a.k = contiguous(device_address(2), type, {2, 500, 2, 64});
  a.v = contiguous(device_address(3), type, {2, 500, 2, 64});
  a.o = contiguous(device_address(4), type, {2, 300, 4, 64});
  a.device = 0;
  return a;
}

std::string error_of(const Attention& a) {
  try {
    forward(a);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string rejection_of(const Attention& a, const char* implementation) {
  for (const Rejection& rejection : plan(a, Pass::forward).rejections)
    if (rejection.implementation == implementation) return rejection.reason;
  return "";
}

/// On a GPU that has no kernels of its own.
class Launch : public FakeCuda {
 protected:
  void SetUp() override {
    FakeCuda::SetUp();
    fake->capability = 80;
  }
};

class HopperLaunch : public Launch {
 protected:
  void SetUp() override {
    Launch::SetUp();
    fake->capability = 90;
  }
};

TEST_F(Launch, LaunchesWhatWasPlanned) {
  Attention a = problem();
  a.causal = true;
  a.stream = device_address(99);
  const Plan planned = plan(a, Pass::forward);
  EXPECT_EQ(planned.implementation, "cuda_portable_forward");
  EXPECT_EQ(planned.backend, Backend::cuda);
  EXPECT_EQ(planned.workspace_bytes, 0u);
  EXPECT_EQ(fake->launches, 0);
  const Plan ran = forward(a);
  EXPECT_EQ(ran.implementation, planned.implementation);
  ASSERT_EQ(fake->launches, 1);
  EXPECT_TRUE(std::strstr(fake->last.kernel, "portable_forward_bf16_d64")) << fake->last.kernel;
  EXPECT_EQ(fake->last.grid[0], 3u * 4 * 2);  // row blocks of 128, heads, sequences
  EXPECT_EQ(fake->last.grid[1], 1u);
  EXPECT_EQ(fake->last.block[0], 128u);
  EXPECT_EQ(fake->last.stream, a.stream);
  EXPECT_EQ(fake->context_depth, 0) << "the context that was current is not current again";
}

/// What is read from DRAM depends on the GPU's L2, not on the host's caches.
TEST_F(Launch, PredictsTrafficOfTheGpu) {
  Attention a = problem();
  for (Tensor* tensor : {&a.q, &a.k, &a.v, &a.o}) *tensor = contiguous(tensor->data, DType::bf16, {1, 8192, 16, 128});
  const double tensor_bytes = 8192.0 * 16 * 128 * 2;
  const Prediction fits = plan(a, Pass::forward).predicted;
  EXPECT_DOUBLE_EQ(fits.main_memory_read_bytes, 3 * tensor_bytes)
      << "the keys and values of the heads at work stay in L2";
  EXPECT_DOUBLE_EQ(fits.main_memory_write_bytes, tensor_bytes + 8192 * 16 * 4) << "o and lse";
}

Attention few_queries() {
  Attention a = problem();
  a.q = contiguous(device_address(1), DType::bf16, {1, 1, 32, 128});
  a.k = contiguous(device_address(2), DType::bf16, {1, 4096, 8, 128});
  a.v = contiguous(device_address(3), DType::bf16, {1, 4096, 8, 128});
  a.o = contiguous(device_address(4), DType::bf16, {1, 1, 32, 128});
  return a;
}

/// Few queries over many keys: the plan says the splits and the memory for their results.
TEST_F(Launch, SplitsKeysWhereQueriesAreFew) {
  Attention a = few_queries();
  const Plan planned = plan(a, Pass::forward);
  EXPECT_EQ(planned.tile.tile_m, 16);
  EXPECT_EQ(planned.tile.num_splits, 32);
  EXPECT_EQ(planned.tile.heads_per_tile, 4);
  EXPECT_EQ(planned.workspace_bytes, 32u * 32 * (128 * 4 + 8));
  forward(a);
  EXPECT_EQ(fake->launches, 2);
  EXPECT_EQ(fake->allocations, 0) << "the workspace of the call is freed";
  EXPECT_STREQ(fake->last.kernel, "combine_splits_bf16");
  EXPECT_EQ(fake->last.grid[0], 32u);
  a.batch_invariant = true;
  EXPECT_EQ(plan(a, Pass::forward).tile.split_size, 2048);
}

/// A step of generation: the append, the attention, the merging of its splits. Nothing of device memory is looked at.
TEST_F(Launch, DecodesInDeviceMemory) {
  Decode step;
  Attention& a = step.attention;
  a.q = contiguous(device_address(1), DType::bf16, {2, 1, 8, 64});
  a.k = contiguous(device_address(2), DType::bf16, {2, 4096, 2, 64});
  a.v = contiguous(device_address(3), DType::bf16, {2, 4096, 2, 64});
  a.o = contiguous(device_address(4), DType::bf16, {2, 1, 8, 64});
  a.seqused_k = contiguous(device_address(5), DType::i32, {2});
  step.k_new = step.v_new = contiguous(device_address(6), DType::bf16, {2, 1, 2, 64});
  step.rotary.cos = step.rotary.sin = contiguous(device_address(7), DType::f32, {5000, 32});
  a.device = 0;
  const Plan planned = plan(step);
  EXPECT_EQ(planned.implementation, "cuda_portable_forward");
  decode(step);
  EXPECT_EQ(fake->launches, 3);
  EXPECT_EQ(fake->allocations, 0);
}

TEST_F(Launch, MergesInDeviceMemory) {
  const Tensor o = contiguous(device_address(1), DType::bf16, {2, 1, 8, 64});
  const Tensor lse = contiguous(device_address(2), DType::f32, {2, 8, 1});
  merge_on_device(std::vector{o, o}, std::vector{lse, lse}, o, lse, 0);
  EXPECT_STREQ(fake->last.kernel, "merge_parts");
  EXPECT_EQ(fake->last.grid[0], 4u);
}

/// What has no implementation on a GPU says so before it touches a tensor.
TEST_F(Launch, RefusesTheBackwardPass) {
  Attention a = problem();
  a.lse = contiguous(device_address(5), DType::f32, {2, 4, 300});
  a.dout = a.o, a.dq = a.q;
  try {
    backward(a);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the tensors are in the memory of CUDA device 0"), std::string::npos)
        << error.what();
  }
}

/// 64 sequences: 768 tiles for 132 CTAs. Of equal length, they are dealt out beforehand; under a causal mask CTAs take
/// them one by one, from a counter in the workspace.
Attention many_tiles() {
  Attention a = problem();
  for (Tensor* tensor : {&a.q, &a.k, &a.v, &a.o}) tensor->shape[0] = 64;
  return a;
}

TEST_F(HopperLaunch, OfItsOwnKernelIsPersistent) {
  const Plan planned = plan(many_tiles(), Pass::forward);
  EXPECT_EQ(planned.implementation, "cuda_fwd_sm90");
  EXPECT_EQ(planned.workspace_bytes, 0u);
  EXPECT_EQ(planned.tile.tile_m, 128);
  EXPECT_EQ(planned.tile.tile_n, 128);
  forward(many_tiles());
  ASSERT_EQ(fake->launches, 1);
  EXPECT_TRUE(std::strstr(fake->last.kernel, "fwd_sm90_bf16_d64")) << fake->last.kernel;
  EXPECT_EQ(fake->last.grid[0], 132u);
  EXPECT_EQ(fake->last.block[0], 384u);
  EXPECT_EQ(fake->context_depth, 0);
}

TEST_F(HopperLaunch, SharesOutTilesOfDifferentLength) {
  Attention a = many_tiles();
  a.causal = true;
  EXPECT_EQ(plan(a, Pass::forward).workspace_bytes, 64u);
  forward(a);
  EXPECT_EQ(fake->launches, 1);
  EXPECT_EQ(fake->allocations, 0) << "the workspace of the call is freed";
  fake->failing_call = "cuMemsetD32Async";
  fake->failure_code = 719;
  EXPECT_NE(error_of(a).find("cuMemsetD32Async failed"), std::string::npos) << error_of(a);
  EXPECT_EQ(fake->launches, 1);
}

TEST_F(HopperLaunch, SaysWhichTensorHasNoMap) {
  fake->failing_call = "cuTensorMapEncodeTiled";
  fake->failure_code = 1;
  EXPECT_NE(error_of(many_tiles()).find("cuTensorMapEncodeTiled of q failed"), std::string::npos)
      << error_of(many_tiles());
  EXPECT_EQ(fake->launches, 0);
}

TEST_F(HopperLaunch, LeavesToOthersWhatItCannotDo) {
  const char* name = "cuda_fwd_sm90";
  Attention a = many_tiles();
  EXPECT_EQ(rejection_of(a, name), "");
  a.q.shape[3] = a.k.shape[3] = 60;
  EXPECT_EQ(rejection_of(a, name), "head_dim 60 and head_dim_v 64, expected multiples of 8 up to 256");
  a = many_tiles();
  a.k.stride[2] = 68;
  EXPECT_EQ(rejection_of(a, name), "k: a stride is not a multiple of 16 bytes");
  a = many_tiles();
  a.v.data = static_cast<char*>(a.v.data) + 8;
  EXPECT_EQ(rejection_of(a, name), "v: its address is not a multiple of 16 bytes");
  a = many_tiles();
  a.k.stride[1] = 0;
  EXPECT_EQ(rejection_of(a, name), "k: rows are broadcast");
  EXPECT_EQ(rejection_of(problem(DType::f32), name), "q, k and v are not all bf16 or all f16");
  a = problem();
  a.q.shape[1] = a.o.shape[1] = 16;
  EXPECT_EQ(rejection_of(a, name), "few queries, which would leave most of a tile empty");
  a.at_least = name;
  EXPECT_EQ(plan(a, Pass::forward).implementation, name) << "asked for by name";
  a = many_tiles();
  a.batch_invariant = true;
  EXPECT_EQ(plan(a, Pass::forward).implementation, "cuda_portable_forward") << "whatever else is in the batch";
}

TEST_F(Launch, CompilesOnceAProcess) {
  for (int n = 0; n < 3; ++n) forward(problem());
  EXPECT_EQ(fake->launches, 3);
  EXPECT_EQ(fake->compilations, 1);
  EXPECT_EQ(fake->modules_loaded, 1);
}

TEST_F(Launch, LoadsOnEachDevice) {
  Attention a = problem();
  forward(a);
  a.device = 1;
  forward(a);
  EXPECT_EQ(fake->modules_loaded, 2);
  EXPECT_EQ(fake->compilations, 1) << "the second device takes it from the cache";
}

TEST_F(Launch, LooksAtNoLengthInDeviceMemory) {
  Attention a;
  a.q = contiguous(device_address(1), DType::f16, {700, 4, 64});
  a.k = contiguous(device_address(2), DType::f16, {30, 16, 2, 64});
  a.v = contiguous(device_address(3), DType::f16, {30, 16, 2, 64});
  a.o = contiguous(device_address(4), DType::f16, {700, 4, 64});
  a.lse = contiguous(device_address(5), DType::f32, {4, 700});
  a.cu_seqlens_q = contiguous(device_address(6), DType::i32, {4});
  a.seqused_k = contiguous(device_address(7), DType::i32, {3});
  a.page_table = contiguous(device_address(8), DType::i32, {3, 10});
  a.device = 0;
  forward(a);
  EXPECT_EQ(fake->launches, 1);
  EXPECT_EQ(fake->last.grid[0], (700u / 128 + 3) * 4);
}

TEST_F(Launch, EmptyProblemsLaunchNothing) {
  Attention a = problem();
  a.q.shape[1] = a.o.shape[1] = 0;
  forward(a);
  EXPECT_EQ(fake->launches, 0);
}

TEST_F(Launch, HostTensorsStayOnTheCpu) {
  Attention a = problem();
  a.device = -1;
  EXPECT_EQ(rejection_of(a, "cuda_portable_forward"), "the tensors are in host memory (device is −1)");
}

TEST_F(Launch, DeviceTensorsAreRefusedByCpuBackends) {
  Attention a = problem();
  a.backend = Backend::standard;
  EXPECT_NE(error_of(a).find("the tensors are in the memory of CUDA device 0"), std::string::npos) << error_of(a);
}

TEST_F(Launch, NamesADeviceThatIsNotThere) {
  Attention a = problem();
  a.device = 5;
  EXPECT_NE(error_of(a).find("device: 5, expected 0 to 1"), std::string::npos) << error_of(a);
  a.device = -2;
  EXPECT_NE(error_of(a).find("device: expected −1"), std::string::npos) << error_of(a);
}

TEST_F(Launch, RefusesOldGpus) {
  fake->capability = 75;
  EXPECT_NE(error_of(problem()).find("Fake GPU has compute capability 7.5, expected 8.0 or newer"), std::string::npos)
      << error_of(problem());
}

TEST_F(Launch, RefusesDoublePrecision) {
  EXPECT_NE(error_of(problem(DType::f64)).find("f64 is computed on the CPU"), std::string::npos);
}

TEST_F(Launch, RefusesMoreTilesThanAGridHolds) {
  Attention a = problem();
  a.q.shape[0] = a.k.shape[0] = a.v.shape[0] = a.o.shape[0] = std::int64_t{1} << 28;
  EXPECT_NE(error_of(a).find("more than 2^31 tiles"), std::string::npos) << error_of(a);
}

TEST_F(Launch, SaysWhyThereIsNoDriver) {
  setenv("ONCHIP_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
  EXPECT_NE(error_of(problem()).find("CUDA driver: not found (tried /nonexistent/libcuda.so.1)"), std::string::npos)
      << error_of(problem());
}

TEST_F(Launch, SaysThatTheDriverIsTooOld) {
  fake->driver_version = 12030;
  EXPECT_NE(error_of(problem()).find("CUDA driver 12.3, expected 12.4 or newer"), std::string::npos)
      << error_of(problem());
}

class DriverFailure : public Launch, public ::testing::WithParamInterface<const char*> {};

TEST_P(DriverFailure, IsReportedAndLeavesNothingBehind) {
  fake->failing_call = GetParam();
  fake->failure_code = 719;
  const std::string error = error_of(problem());
  const std::string expected =
      std::string("cuda: ") + GetParam() + " failed with FAKE_ERROR (719): the fake driver was told to fail";
  EXPECT_NE(error.find(expected), std::string::npos) << error;
  EXPECT_EQ(fake->launches, 0);
  EXPECT_EQ(fake->context_depth, 0);
  EXPECT_EQ(fake->modules_loaded - fake->modules_unloaded, std::strcmp(GetParam(), "cuLaunchKernel") == 0 ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(Calls, DriverFailure,
                         ::testing::Values("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet",
                                           "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceTotalMem_v2",
                                           "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPushCurrent_v2",
                                           "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute",
                                           "cuLaunchKernel"),
                         [](const auto& call) { return std::string(call.param); });

/// Of the calls that only splits need: the workspace and the merging.
TEST_F(HopperLaunch, ReportsFailuresOfSplits) {
  fake->failure_code = 719;
  for (const char* call : {"cuMemAllocAsync", "cuLaunchKernelEx"}) {
    fake->failing_call = call;
    EXPECT_NE(error_of(few_queries()).find(std::string("cuda: ") + call + " failed with FAKE_ERROR (719)"),
              std::string::npos)
        << error_of(few_queries());
    EXPECT_EQ(fake->allocations, 0) << call;
    EXPECT_EQ(fake->context_depth, 0) << call;
  }
}

TEST_F(Launch, RecoversFromAFailure) {
  for (const char* call : {"cuDeviceGetCount", "cuModuleLoadData", "cuLaunchKernel"}) {
    fake->failing_call = call;
    fake->failure_code = 2;
    EXPECT_NE(error_of(problem()), "");
  }
  fake->failing_call = nullptr;
  EXPECT_EQ(error_of(problem()), "");
  EXPECT_EQ(fake->launches, 1);
}

TEST_F(Launch, OutOfDeviceMemoryHasItsCode) {
  fake->failing_call = "cuModuleLoadData";
  fake->failure_code = 2;
  try {
    forward(problem());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::out_of_memory);
  }
}

class CompilerFailure : public Launch, public ::testing::WithParamInterface<const char*> {};

TEST_P(CompilerFailure, CarriesTheLog) {
  fake->failing_call = GetParam();
  fake->failure_code = 6;
  fake->compile_log = "line 7: what the compiler said";
  const std::string error = error_of(problem());
  EXPECT_NE(error.find(std::string(GetParam()) + " failed (6: FAKE_NVRTC_ERROR)"), std::string::npos) << error;
  if (std::strcmp(GetParam(), "nvrtcCompileProgram") == 0) {
    EXPECT_NE(error.find(fake->compile_log), std::string::npos) << error;
  }
  EXPECT_EQ(fake->launches, 0);
}

INSTANTIATE_TEST_SUITE_P(Calls, CompilerFailure,
                         ::testing::Values("nvrtcVersion", "nvrtcCreateProgram", "nvrtcCompileProgram",
                                           "nvrtcGetCUBINSize", "nvrtcGetCUBIN"),
                         [](const auto& call) { return std::string(call.param); });

}  // namespace
}  // namespace onchip::test
