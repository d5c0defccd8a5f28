// Few queries over every type of cache, on each instruction set that this machine has: keys and values in place and
// through scratch, in whole blocks of vectors and with a rest.
#include <gtest/gtest.h>

#include "cpu/implementations.hpp"
#include "cpu/simd_functions.hpp"
#include "support/cases.hpp"
#include "support/check_case.hpp"
#include "support/run.hpp"

namespace onchip::test {
namespace {

struct Cache {
  DType type, kv_type;
};

Case cache_case(const Cache& cache, std::int64_t rows, std::int64_t dim, std::int64_t keys) {
  Case c = dense_case(cache.type, {2, 1, keys, 2 * rows, 2, dim, dim}, static_cast<std::uint64_t>(rows * dim), false);
  if (cache.kv_type == cache.type) return c;
  Rng rng(3);
  const double range = cache.kv_type == DType::i8 ? 40 : 1;
  for (TensorBuffer* tensor : {&c.k, &c.v}) {
    *tensor = TensorBuffer(cache.kv_type, {2, keys, 2, dim});
    tensor->fill([&] { return range * rng.normal(); });
  }
  c.k_scale = TensorBuffer(DType::f32, {2});
  c.v_scale = TensorBuffer(DType::f32, {2, keys, 2});
  for (TensorBuffer* scale : {&c.k_scale, &c.v_scale}) scale->fill([&] { return (1 + rng.uniform()) / range; });
  return c;
}

void check(const Cache& cache, std::int64_t rows, std::int64_t dim) {
  Case c = cache_case(cache, rows, dim, 75);
  SCOPED_TRACE(describe(c));
  const Outcome outcome = run_guarded(
      c, Pass::forward, [](const Attention& args, Pass pass) { return run_implementation(cpu::kDecode, args, pass); });
  ASSERT_EQ(outcome.error, "");
  for (const std::string& failure : compare_results(c, Pass::forward)) ADD_FAILURE() << failure;
}

TEST(DecodeTargets, EveryTypeOfCacheAndNumberOfRows) {
  cpu::for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Cache& cache :
         {Cache{DType::f32, DType::f32}, Cache{DType::f64, DType::f64}, Cache{DType::f16, DType::f16},
          Cache{DType::bf16, DType::bf16}, Cache{DType::f32, DType::i8}, Cache{DType::f32, DType::e4m3},
          Cache{DType::f32, DType::e5m2}, Cache{DType::f64, DType::i8}, Cache{DType::bf16, DType::e4m3}})
      for (const std::int64_t rows : {1, 2, 3, 4, 7})
        for (const std::int64_t dim : {40, 64, 80, 128}) check(cache, rows, dim);
  });
}

/// A code that is no number, in a key that is seen and in one that is not.
TEST(DecodeTargets, NotANumberReachesTheRowsThatSeeIt) {
  cpu::for_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const DType type : {DType::e4m3, DType::e5m2})
      for (const bool in_values : {false, true})
        for (const std::int64_t key : {20, 74}) {
          Case c = cache_case({DType::f32, type}, 2, 64, 75);
          c.seqused_k = TensorBuffer(DType::i32, {2});
          c.seqused_k.fill([] { return 74; });
          TensorBuffer& tensor = in_values ? c.v : c.k;
          std::vector<double> values = tensor.values();
          values[static_cast<std::size_t>((key * 2 + 1) * 64 + 37)] = std::numeric_limits<double>::quiet_NaN();
          tensor.assign(values);
          SCOPED_TRACE(describe(c));
          const Outcome outcome = run_guarded(c, Pass::forward, [](const Attention& args, Pass pass) {
            return run_implementation(cpu::kDecode, args, pass);
          });
          ASSERT_EQ(outcome.error, "");
          EXPECT_EQ(std::isnan(c.o.values()[2 * 64 + 37]), key == 20);
          for (const std::string& failure : compare_results(c, Pass::forward)) ADD_FAILURE() << failure;
        }
  });
}

}  // namespace
}  // namespace onchip::test
