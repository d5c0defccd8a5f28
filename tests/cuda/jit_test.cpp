// Where a kernel's machine code comes from, with the fake compiler.
#include "cuda/host/jit.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "cuda/fake_fixture.hpp"
#include "cuda/host/embedded_sources.hpp"

namespace onchip::test {
namespace {

using cuda::CubinOrigin;
using cuda::KernelRequest;

KernelRequest request() {
  return {"some_kernel", "cuda/device/kernels/portable_forward.cuh", {"A=1", "B=2"}, "sm_90a"};
}

class Jit : public FakeCuda {
 protected:
  CubinOrigin origin_of(const KernelRequest& wanted) {
    std::vector<char> cubin;
    CubinOrigin origin;
    const Status status = cuda::get_cubin(wanted, cubin, origin);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::string(cubin.begin(), cubin.end()), "fake cubin");
    return origin;
  }
};

TEST_F(Jit, CompilesOnceAndThenReadsTheCache) {
  EXPECT_EQ(origin_of(request()), CubinOrigin::compiled);
  EXPECT_EQ(origin_of(request()), CubinOrigin::cached);
  EXPECT_EQ(fake->compilations, 1);
}

TEST_F(Jit, EveryPartOfARequestMakesAnotherEntry) {
  origin_of(request());
  KernelRequest other = request();
  other.defines[1] = "B=3";
  EXPECT_EQ(origin_of(other), CubinOrigin::compiled);
  other = request();
  other.arch = "sm_80";
  EXPECT_EQ(origin_of(other), CubinOrigin::compiled);
  other = request();
  other.name = "another_kernel";
  EXPECT_EQ(origin_of(other), CubinOrigin::compiled);
  EXPECT_EQ(origin_of(request()), CubinOrigin::cached);
}

TEST_F(Jit, KeysHoldTheSourcesAndTheCompiler) {
  const cuda::Nvrtc old_compiler{.path = "", .major = 12, .minor = 4},
      new_compiler{.path = "", .major = 13, .minor = 0};
  EXPECT_NE(cuda::cached_key(request(), old_compiler).text, cuda::cached_key(request(), new_compiler).text);
  EXPECT_NE(cuda::prepared_key(request()).text.find(cuda::embedded_digest()), std::string::npos);
}

TEST_F(Jit, PreparedKernelsNeedNoCompiler) {
  const TemporaryFolder prepared;
  const std::string content = "fake cubin";
  ASSERT_TRUE(cuda::write_cubin(prepared.root(), cuda::prepared_key(request()), {content.begin(), content.end()}).ok());
  setenv("ONCHIP_KERNELS", prepared.root().c_str(), 1);
  setenv("ONCHIP_NVRTC", "/nonexistent/libnvrtc.so", 1);
  EXPECT_EQ(origin_of(request()), CubinOrigin::prepared);
  KernelRequest other = request();
  other.name = "not_prepared";
  std::vector<char> cubin;
  CubinOrigin origin;
  const Status status = cuda::get_cubin(other, cubin, origin);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("not_prepared: not among the prepared kernels"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("/nonexistent/libnvrtc.so"), std::string::npos) << status.message();
}

TEST_F(Jit, WorksWithoutACache) {
  for (const char* folder : {"", "/proc/onchip"}) {
    setenv("ONCHIP_CACHE", folder, 1);
    EXPECT_EQ(origin_of(request()), CubinOrigin::compiled);
    EXPECT_EQ(origin_of(request()), CubinOrigin::compiled);
  }
}

TEST_F(Jit, RebuildsABrokenEntry) {
  origin_of(request());
  for (const auto& entry : std::filesystem::directory_iterator(folder_.root())) std::ofstream(entry.path()) << "broken";
  EXPECT_EQ(origin_of(request()), CubinOrigin::compiled);
  EXPECT_EQ(origin_of(request()), CubinOrigin::cached);
}

TEST(EmbeddedSources, AreCompleteAndIncludeOnlyEachOther) {
  int files = 0;
  for (const cuda::SourceFile& file : cuda::embedded_sources()) {
    ++files;
    std::string_view rest = file.text;
    for (std::size_t at; (at = rest.find("#include ")) != std::string_view::npos;) {
      rest.remove_prefix(at + 10);
      const std::string name(rest.substr(0, rest.find_first_of("\">")));
      bool found = false;
      for (const cuda::SourceFile& other : cuda::embedded_sources()) found = found || name == other.name;
      EXPECT_TRUE(found) << file.name << " includes " << name;
    }
  }
  EXPECT_GE(files, 15);
}

TEST(Complaints, FindsWhatMakesKernelsSlow) {
  EXPECT_TRUE(
      cuda::complaints("ptxas . 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nUsed 255 registers")
          .empty());
  for (const char* line : {"ptxas . 16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
                           "0 bytes stack frame, 10 bytes spill stores",
                           "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized",
                           "C7516 something", "(C7508) setmaxnreg ignored to maintain minimum register requirement"})
    EXPECT_EQ(cuda::complaints(line).size(), 1u) << line;
  EXPECT_TRUE(cuda::complaints("C7519 is a hint").empty());
}

}  // namespace
}  // namespace onchip::test
