#include <cstddef>

#include "onchip/onchip.hpp"

namespace onchip {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
    case DType::i8:
      return "i8";
    case DType::i32:
      return "i32";
    case DType::boolean:
      return "bool";
  }
  return "unknown";
}

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::e4m3:
    case DType::e5m2:
    case DType::i8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

Tensor contiguous(void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  Tensor tensor{data, dtype, static_cast<int>(shape.size()), {}, {}};
  if (shape.size() > tensor.shape.size())
    throw Error(StatusCode::invalid_argument,
                "shape: a tensor has at most 4 dimensions, got " + std::to_string(shape.size()));
  std::size_t at = 0;
  for (std::int64_t size : shape) tensor.shape[at++] = size;
  std::int64_t stride = 1;
  while (at-- > 0) {
    tensor.stride[at] = stride;
    static_cast<void>(
        __builtin_mul_overflow(stride, tensor.shape[at], &stride));  // too large a shape is refused where it is used
  }
  return tensor;
}

Tensor contiguous(const void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  return contiguous(const_cast<void*>(data), dtype, shape);
}

}  // namespace onchip
