// Element offsets beyond 2^31: views with huge strides over memory that is reserved and barely touched.
#include <sys/mman.h>

#include <cmath>

#include "cpu/backend_test.hpp"
#include "reference/attention.hpp"
#include "reference/formats.hpp"

namespace onchip::test {
namespace {

constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 64;  // elements between two sequences
constexpr DType kType = DType::bf16;

/// [2, rows, heads, columns] with kFar elements between the sequences; pages appear as they are written.
class SparseTensor {
 public:
  SparseTensor(std::int64_t rows, std::int64_t heads, std::int64_t columns)
      : bytes_(static_cast<std::size_t>(kFar + rows * heads * columns) * size_of(kType)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    view_ = contiguous(data_, kType, {2, rows, heads, columns});
    view_.stride[0] = kFar;
  }
  ~SparseTensor() {
    if (mapped()) munmap(data_, bytes_);
  }
  SparseTensor(const SparseTensor&) = delete;
  SparseTensor& operator=(const SparseTensor&) = delete;

  bool mapped() const { return data_ != MAP_FAILED; }
  const Tensor& view() const { return view_; }
  void copy_from(const TensorBuffer& buffer) {
    const std::vector<double> values = buffer.values();
    for_each_element(view_, [&](std::int64_t at, std::int64_t position) {
      encode(kType, data_, at, values[static_cast<std::size_t>(position)]);
    });
  }
  std::vector<double> values() const {
    std::vector<double> result;
    for_each_element(view_, [&](std::int64_t at, std::int64_t) { result.push_back(decode(kType, data_, at)); });
    return result;
  }

 private:
  std::size_t bytes_;
  void* data_;
  Tensor view_;
};

class FarOffsets : public BackendTest {};

/// Far apart or close together, the same bits.
TEST_P(FarOffsets, GiveTheBitsOfACompactTensor) {
  Case c = dense_case(kType, {2, 70, 90, 2, 1, 32, 24}, 53, has_backward());
  if (c.gradients()) set_statistics(c);
  ASSERT_EQ(run_passes(c, GetParam()), "");
  SparseTensor q(70, 2, 32), k(90, 1, 32), v(90, 1, 24), o(70, 2, 24), dout(70, 2, 24), dq(70, 2, 32), dk(90, 1, 32),
      dv(90, 1, 24);
  for (const SparseTensor* tensor : {&q, &k, &v, &o, &dout, &dq, &dk, &dv})
    if (!tensor->mapped()) GTEST_SKIP() << "this system does not reserve 4 GiB of address space a tensor";
  q.copy_from(c.q), k.copy_from(c.k), v.copy_from(c.v);
  Attention a = c.forward_args();
  a.q = q.view(), a.k = k.view(), a.v = v.view(), a.o = o.view();
  ASSERT_EQ(run_public(a, Pass::forward).error, "");
  EXPECT_EQ(o.values(), c.o.values());
  if (!c.gradients()) return;
  o.copy_from(c.o_in), dout.copy_from(c.dout);
  a.lse = c.lse_in.view(), a.dout = dout.view(), a.dq = dq.view(), a.dk = dk.view(), a.dv = dv.view();
  ASSERT_EQ(run_public(a, Pass::backward).error, "");
  EXPECT_EQ(dq.values(), c.dq.values());
  EXPECT_EQ(dk.values(), c.dk.values());
  EXPECT_EQ(dv.values(), c.dv.values());
}

ONCHIP_FOR_EACH_BACKEND(FarOffsets);

}  // namespace
}  // namespace onchip::test
