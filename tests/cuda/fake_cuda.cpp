// A driver and a run-time compiler that compute nothing: they answer as real ones would, record what they were asked,
// and fail where a test wants them to. One shared library serves as both.
#include "cuda/fake_cuda.hpp"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/host/driver_api.hpp"

namespace {

onchip::test::FakeState g_state;
int g_contexts[64];  // addresses stand for contexts
void* g_current = nullptr;
std::vector<void*> g_stack;

struct FakeFunction {
  std::string name;
};
struct FakeModule {
  std::map<std::string, FakeFunction> functions;
};
struct FakeProgram {
  std::string name;
};
std::map<void*, std::unique_ptr<FakeModule>> g_modules;  // a driver owns what it loaded until the process ends

/// Told by the test through the state, or, to another process, by ONCHIP_FAKE_FAILURE, which names the call.
int result_of(const char* call) {
  const char* named = std::getenv("ONCHIP_FAKE_FAILURE");
  if (named != nullptr && std::strcmp(named, call) == 0) return 999;
  return g_state.failing_call != nullptr && std::strcmp(g_state.failing_call, call) == 0 ? g_state.failure_code : 0;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))
#define FAIL_IF_ASKED() \
  if (const int failure = result_of(__func__); failure != 0) return failure

FAKE onchip::test::FakeState* fake_cuda_state() { return &g_state; }

FAKE int cuInit(unsigned) {
  FAIL_IF_ASKED();
  return 0;
}
FAKE int cuDriverGetVersion(int* version) {
  FAIL_IF_ASKED();
  *version = g_state.driver_version;
  return 0;
}
FAKE int cuGetErrorName(int, const char** name) {
  *name = "FAKE_ERROR";
  return 0;
}
FAKE int cuGetErrorString(int, const char** text) {
  *text = "the fake driver was told to fail";
  return 0;
}
FAKE int cuDeviceGetCount(int* count) {
  FAIL_IF_ASKED();
  *count = g_state.devices;
  return 0;
}
FAKE int cuDeviceGet(int* device, int ordinal) {
  FAIL_IF_ASKED();
  *device = ordinal;
  return 0;
}
FAKE int cuDeviceGetName(char* name, int size, int) {
  FAIL_IF_ASKED();
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(size));
  return 0;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  FAIL_IF_ASKED();
  switch (attribute) {
    case 16:
      *value = 132;
      break;
    case 38:
      *value = 60 << 20;
      break;
    case 75:
      *value = g_state.capability / 10;
      break;
    case 76:
      *value = g_state.capability % 10;
      break;
    case 81:
      *value = 233472;
      break;
    case 97:
      *value = g_state.shared_bytes_per_block;
      break;
    default:
      return 1;
  }
  return 0;
}
FAKE int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  FAIL_IF_ASKED();
  *bytes = std::size_t{141} << 30;
  return 0;
}
FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  FAIL_IF_ASKED();
  *context = &g_contexts[device];
  return 0;
}
FAKE int cuCtxGetCurrent(void** context) {
  FAIL_IF_ASKED();
  *context = g_current;
  return 0;
}
FAKE int cuCtxPushCurrent_v2(void* context) {
  FAIL_IF_ASKED();
  g_stack.push_back(g_current);
  g_current = context;
  ++g_state.context_depth;
  return 0;
}
FAKE int cuCtxPopCurrent_v2(void** context) {
  FAIL_IF_ASKED();
  *context = g_current;
  g_current = g_stack.back();
  g_stack.pop_back();
  --g_state.context_depth;
  return 0;
}
FAKE int cuCtxSynchronize() {
  FAIL_IF_ASKED();
  return 0;
}
FAKE int cuMemAlloc_v2(unsigned long long* pointer, std::size_t bytes) {
  FAIL_IF_ASKED();
  *pointer = reinterpret_cast<unsigned long long>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  ++g_state.allocations;
  return 0;
}
FAKE int cuMemFree_v2(unsigned long long pointer) {
  std::free(reinterpret_cast<void*>(pointer));
  --g_state.allocations;
  return 0;
}
FAKE int cuMemAllocAsync(unsigned long long* pointer, std::size_t bytes, void*) {
  FAIL_IF_ASKED();
  return cuMemAlloc_v2(pointer, bytes);
}
FAKE int cuMemFreeAsync(unsigned long long pointer, void*) { return cuMemFree_v2(pointer); }
FAKE int cuMemcpyHtoD_v2(unsigned long long to, const void* from, std::size_t bytes) {
  FAIL_IF_ASKED();
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
FAKE int cuMemcpyDtoH_v2(void* to, unsigned long long from, std::size_t bytes) {
  FAIL_IF_ASKED();
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
FAKE int cuModuleLoadData(void** module, const void*) {
  FAIL_IF_ASKED();
  auto loaded = std::make_unique<FakeModule>();
  *module = loaded.get();
  g_modules.emplace(*module, std::move(loaded));
  ++g_state.modules_loaded;
  return 0;
}
FAKE int cuModuleUnload(void* module) {
  g_modules.erase(module);
  ++g_state.modules_unloaded;
  return 0;
}
FAKE int cuModuleGetFunction(void** function, void* module, const char* name) {
  FAIL_IF_ASKED();
  FakeFunction& found = static_cast<FakeModule*>(module)->functions[name];
  found.name = name;
  *function = &found;
  return 0;
}
FAKE int cuFuncSetAttribute(void*, int, int) {
  FAIL_IF_ASKED();
  return 0;
}
FAKE int cuMemsetD32Async(unsigned long long, unsigned, std::size_t, void*) {
  FAIL_IF_ASKED();
  return 0;
}
FAKE int cuTensorMapEncodeTiled(void*, int, unsigned, void*, const void*, const void*, const void*, const void*, int,
                                int, int, int) {
  FAIL_IF_ASKED();
  return 0;
}
FAKE int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                        void**) {
  FAIL_IF_ASKED();
  auto& last = g_state.last;
  std::strncpy(last.kernel, static_cast<FakeFunction*>(function)->name.c_str(), sizeof last.kernel - 1);
  last.grid[0] = grid_x, last.grid[1] = grid_y, last.grid[2] = grid_z;
  last.block[0] = block_x, last.block[1] = block_y, last.block[2] = block_z;
  last.shared_bytes = shared_bytes;
  last.stream = stream;
  last.parameters = parameters[0];
  ++g_state.launches;
  return 0;
}

FAKE int cuLaunchKernelEx(const onchip::cuda::LaunchConfig* config, void* function, void** parameters, void** extra) {
  FAIL_IF_ASKED();
  return cuLaunchKernel(function, config->grid_x, config->grid_y, config->grid_z, config->block_x, config->block_y,
                        config->block_z, config->shared_bytes, config->stream, parameters, extra);
}

FAKE int nvrtcVersion(int* major, int* minor) {
  FAIL_IF_ASKED();
  *major = 13, *minor = 0;
  return 0;
}
FAKE const char* nvrtcGetErrorString(int) { return "FAKE_NVRTC_ERROR"; }
FAKE int nvrtcCreateProgram(void** program, const char*, const char* name, int, const char* const*,
                            const char* const*) {
  FAIL_IF_ASKED();
  *program = new FakeProgram{name};
  return 0;
}
FAKE int nvrtcDestroyProgram(void** program) {
  delete static_cast<FakeProgram*>(*program);
  *program = nullptr;
  return 0;
}
FAKE int nvrtcCompileProgram(void*, int, const char* const*) {
  ++g_state.compilations;
  FAIL_IF_ASKED();
  return 0;
}
FAKE int nvrtcGetProgramLogSize(void*, std::size_t* size) {
  FAIL_IF_ASKED();
  *size = std::strlen(g_state.compile_log) + 1;
  return 0;
}
FAKE int nvrtcGetProgramLog(void*, char* log) {
  FAIL_IF_ASKED();
  std::strcpy(log, g_state.compile_log);
  return 0;
}
FAKE int nvrtcGetCUBINSize(void*, std::size_t* size) {
  FAIL_IF_ASKED();
  *size = 10;
  return 0;
}
FAKE int nvrtcGetCUBIN(void*, char* cubin) {
  FAIL_IF_ASKED();
  std::memcpy(cubin, "fake cubin", 10);
  return 0;
}
