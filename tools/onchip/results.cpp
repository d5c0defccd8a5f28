#include "onchip/results.hpp"

#include <cstring>

namespace onchip::cli {
namespace {

constexpr int kNaNByte = 0xFF;  // a NaN in every floating-point type, wherever a result was not written

Tensor lse_like(const Attention& a) {
  const DType type = a.q.dtype == DType::f64 ? DType::f64 : DType::f32;
  const void* none = nullptr;
  if (a.q.rank == 3) return contiguous(none, type, {a.q.shape[1], a.q.shape[0]});
  return contiguous(none, type, {a.q.shape[0], a.q.shape[2], a.q.shape[1]});
}

}  // namespace

std::size_t element_count(const Tensor& tensor) {
  std::size_t count = 1;
  for (int d = 0; d < tensor.rank; ++d) count *= static_cast<std::size_t>(tensor.shape[d]);
  return count;
}

Tensor output_like(const Attention& a) {
  const DType type = a.q.dtype == DType::e4m3 ? DType::bf16 : a.q.dtype;
  const std::int64_t last = a.v.shape[a.v.rank - 1];
  const void* none = nullptr;
  if (a.q.rank == 3) return contiguous(none, type, {a.q.shape[0], a.q.shape[1], last});
  return contiguous(none, type, {a.q.shape[0], a.q.shape[1], a.q.shape[2], last});
}

void Results::add(Attention& problem, const char* name, Tensor Attention::*member, Tensor like) {
  if (!like.present()) return;
  const std::size_t bytes = element_count(like) * size_of(like.dtype);
  storage_.emplace_back(bytes);
  std::memset(storage_.back().data(), kNaNByte, bytes);
  like.data = storage_.back().data();
  problem.*member = like;
  tensors_.push_back({name, like});
}

Results::Results(Attention& problem, bool gradients) {
  add(problem, "o", &Attention::o, output_like(problem));
  add(problem, "lse", &Attention::lse, lse_like(problem));
  if (!gradients) return;
  add(problem, "dq", &Attention::dq, problem.q);
  add(problem, "dk", &Attention::dk, problem.k);
  add(problem, "dv", &Attention::dv, problem.v);
  add(problem, "dbias", &Attention::dbias, problem.bias);
  add(problem, "dsink", &Attention::dsink, problem.sink);
}

}  // namespace onchip::cli
