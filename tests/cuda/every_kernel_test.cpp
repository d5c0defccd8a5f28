// Every kernel that the dispatcher can choose, by what changes its code: types, head dimensions by the size of tiles,
// rows by the size of tiles, plain or general scores, whole or partial results; layouts and scales go round. Each
// compiles without register spills, stack frames, serialized wgmma or an ignored setmaxnreg, on a machine without a
// GPU.
#include <gtest/gtest.h>

#include "cuda/compile_setup.hpp"
#include "cuda/host/step_kernels.hpp"

namespace onchip::test {
namespace {

struct Types {
  const char* name;
  DType q, kv;
  bool tf32 = false;
};

constexpr Types kTypes[] = {{"bf16", DType::bf16, DType::bf16},      {"f16", DType::f16, DType::f16},
                            {"f32", DType::f32, DType::f32},         {"tf32", DType::f32, DType::f32, true},
                            {"e4m3", DType::e4m3, DType::e4m3},      {"bf16_i8", DType::bf16, DType::i8},
                            {"bf16_e5m2", DType::bf16, DType::e5m2}, {"f16_e4m3", DType::f16, DType::e4m3},
                            {"f32_i8", DType::f32, DType::i8},       {"tf32_e5m2", DType::f32, DType::e5m2, true}};

struct Dims {
  std::int64_t d, dv;
};
constexpr Dims kDims[] = {{33, 7}, {64, 64}, {128, 128}, {256, 256}, {576, 512}};
constexpr std::int64_t kQueries[] = {1, 8, 16, 512};  // times four heads: tiles of 16, 32, 64 rows, and many

class EveryKernel : public ::testing::TestWithParam<std::tuple<Types, Dims>> {};

TEST_P(EveryKernel, CompilesCleanly) {
  if (!has_compiler()) GTEST_SKIP() << "no NVRTC";
  const auto& [types, dims] = GetParam();
  int index = static_cast<int>(dims.d + static_cast<std::int64_t>(types.kv)) % 7;
  for (const std::int64_t queries : kQueries)
    for (const bool terms : {false, true}) {
      KernelCase setup{
          .name = types.name, .type = types.q, .kv_type = types.kv, .head_dim = dims.d, .head_dim_v = dims.dv};
      setup.tf32 = types.tf32;
      setup.queries = queries;
      setup.terms = terms;
      setup.causal = index % 2 == 0 || terms;
      setup.packed = index % 4 == 1;
      setup.paged = index % 4 >= 2;
      setup.used = index % 3 == 0;
      setup.token_scales = index % 3 == 1;
      const auto requests = cuda::portable_requests(problem_of(setup), kHopper, setup.arch);
      // Whole results, partial ones and their merging: the first two in turns, each with every tile.
      expect_clean(requests[requests.size() > 1 ? static_cast<std::size_t>((index / 2 + index) % 2) : 0]);
      ++index;
    }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Types, Dims>>& tested) {
  const auto& [types, dims] = tested.param;
  return types.name + ("_d" + std::to_string(dims.d)) + "_dv" + std::to_string(dims.dv);
}

INSTANTIATE_TEST_SUITE_P(Portable, EveryKernel,
                         ::testing::Combine(::testing::ValuesIn(kTypes), ::testing::ValuesIn(kDims)), name_of);

TEST(EveryStepKernel, CompilesCleanly) {
  if (!has_compiler()) GTEST_SKIP() << "no NVRTC";
  using cuda::Element;
  expect_clean(cuda::merge_request("sm_90a"));
  for (const Element output : {Element::f32, Element::bf16, Element::f16})
    expect_clean(cuda::combine_request(output, "sm_90a"));
  for (const Element q : {Element::f32, Element::bf16, Element::f16, Element::e4m3})
    for (const Element kv : {q, Element::i8, Element::e4m3, Element::e5m2})
      for (const Element angles : {Element::f32, q}) expect_clean(cuda::append_request({q, kv, angles}, "sm_90a"));
}

class EveryArchitecture : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryArchitecture, CompilesCleanly) {
  if (!has_compiler()) GTEST_SKIP() << "no NVRTC";
  cuda::PortableTarget target{};
  ASSERT_TRUE(cuda::portable_target(GetParam(), target).ok());
  for (const std::int64_t queries : {1, 512})
    for (const std::int64_t dim : {64, 128, 256})
      for (const cuda::KernelRequest& request : cuda::portable_requests(
               problem_of({.name = "", .head_dim = dim, .head_dim_v = dim, .queries = queries}), target, GetParam()))
        expect_clean(request);
}

INSTANTIATE_TEST_SUITE_P(Portable, EveryArchitecture,
                         ::testing::Values("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace onchip::test
