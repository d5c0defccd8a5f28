// include/onchip/gpu.hpp: Status becomes onchip::Error.
#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "cuda/host/cubin_cache.hpp"
#include "cuda/host/driver.hpp"
#include "cuda/host/fwd_sm90_plan.hpp"
#include "cuda/host/gpu.hpp"
#include "cuda/host/jit.hpp"
#include "cuda/host/nvrtc.hpp"
#include "cuda/host/portable_plan.hpp"
#include "onchip/gpu.hpp"

namespace onchip {
namespace {

/// The driver with a device current, for the length of a call.
class OnDevice {
 public:
  explicit OnDevice(int device) : driver_(opened()), current_(driver_) {
    const cuda::Gpu* gpu = nullptr;
    check(cuda::find_gpu(driver_, device, gpu));
    check(current_.enter(*gpu));
  }
  const cuda::Driver& driver() const { return driver_; }

 private:
  static const cuda::Driver& opened() {
    check(cuda::driver_in_use().status);
    return cuda::driver_in_use().driver;
  }

  const cuda::Driver& driver_;
  cuda::CurrentGpu current_;
};

cuda::DevicePointer pointer(const void* data) { return reinterpret_cast<cuda::DevicePointer>(data); }

}  // namespace

DeviceMemory::DeviceMemory(int device, std::size_t bytes) : device_(device) {
  if (bytes == 0) return;
  const OnDevice on(device);
  cuda::DevicePointer allocated = 0;
  check(on.driver().check(on.driver().cuMemAlloc_v2(&allocated, bytes), "cuMemAlloc"));
  data_ = reinterpret_cast<void*>(allocated);  // NOLINT(performance-no-int-to-ptr): the driver counts addresses
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  const cuda::Driver& driver = cuda::driver_in_use().driver;
  const cuda::Gpu* gpu = nullptr;
  cuda::CurrentGpu current(driver);
  if (cuda::find_gpu(driver, device_, gpu).ok() && current.enter(*gpu).ok()) driver.cuMemFree_v2(pointer(data_));
}

void DeviceMemory::write(const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const OnDevice on(device_);
  check(on.driver().check(on.driver().cuMemcpyHtoD_v2(pointer(data_), from, bytes), "cuMemcpyHtoD"));
  check(on.driver().check(on.driver().cuCtxSynchronize(), "cuCtxSynchronize"));
}

void DeviceMemory::read(void* to, std::size_t bytes) const {
  if (bytes == 0) return;
  const OnDevice on(device_);
  check(on.driver().check(on.driver().cuMemcpyDtoH_v2(to, pointer(data_), bytes), "cuMemcpyDtoH"));
}

void synchronize(int device) {
  const OnDevice on(device);
  check(on.driver().check(on.driver().cuCtxSynchronize(), "cuCtxSynchronize"));
}

GpuSoftware gpu_software() {
  GpuSoftware found;
  const auto version_text = [](int major, int minor) { return fmt::format("{}.{}", major, minor); };
  const cuda::DriverInUse& opened = cuda::driver_in_use();
  const cuda::Driver& driver = opened.driver;
  found.driver_path = driver.path;
  if (driver.version > 0) found.driver_version = version_text(driver.version / 1000, driver.version % 1000 / 10);
  found.driver_fault = opened.status.message();
  int count = 0;
  if (opened.status.ok())
    found.driver_fault = driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount").message();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const cuda::Gpu* gpu = nullptr;
    if (const Status status = cuda::find_gpu(driver, ordinal, gpu); status.ok() && gpu != nullptr)
      found.devices.push_back({gpu->name, gpu->capability, gpu->memory_bytes});
    else
      found.driver_fault = status.message();
  }
  if (const cuda::NvrtcInUse& compiler = cuda::nvrtc_in_use(); compiler.status.ok()) {
    found.nvrtc_path = compiler.nvrtc.path;
    found.nvrtc_version = version_text(compiler.nvrtc.major, compiler.nvrtc.minor);
  }
  return found;
}

std::vector<CompiledKernel> compile(const Attention& args, Pass pass, const std::string& arch,
                                    const std::string& folder) {
  Attention on_device = args;
  on_device.device = std::max(args.device, 0);
  Problem problem;
  check(make_problem(on_device, pass, Use::plan, problem));
  if (pass == Pass::backward) throw Error(StatusCode::unsupported, "pass: backward, the GPU has kernels for forward");
  if (const auto reason = cuda::portable_reject(problem)) throw Error(StatusCode::unsupported, "q: " + *reason);
  cuda::PortableTarget target;
  check(cuda::portable_target(arch, target));
  check(cuda::nvrtc_in_use().status);
  std::vector<cuda::KernelRequest> requests = cuda::portable_requests(problem, target, arch);
  if (arch == cuda::kFwdSm90Arch && !cuda::fwd_sm90_reject(problem, target.multiprocessors))
    requests.insert(requests.begin(),
                    cuda::fwd_sm90_request(cuda::fwd_sm90_config(problem, target.multiprocessors), arch));
  std::vector<CompiledKernel> made;
  for (const cuda::KernelRequest& request : requests) {
    cuda::Compilation compilation;
    check(cuda::compile_kernel(cuda::nvrtc_in_use().nvrtc, request, compilation));
    const cuda::CubinKey key = cuda::prepared_key(request);
    check(cuda::write_cubin(folder, key, compilation.cubin));
    made.push_back({request.name, folder + "/" + key.file_name(), cuda::complaints(compilation.log)});
  }
  return made;
}

}  // namespace onchip
