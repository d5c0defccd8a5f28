#include "cuda/host/layouts.hpp"

namespace onchip::cuda {

Element element(DType type) {
  switch (type) {
    case DType::f32:
      return Element::f32;
    case DType::bf16:
      return Element::bf16;
    case DType::f16:
      return Element::f16;
    case DType::e4m3:
      return Element::e4m3;
    case DType::e5m2:
      return Element::e5m2;
    case DType::i8:
      return Element::i8;
    case DType::f64:
    case DType::i32:
    case DType::boolean:
      break;
  }
  return Element::none;
}

const char* element_name(Element e) {
  static constexpr const char* kNames[] = {"none", "f32", "bf16", "f16", "e4m3", "e5m2", "i8"};
  return kNames[static_cast<int>(e)];
}

RowLayout row_layout(const Tensor& t, int batch, int row, int head) {
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  const auto bytes = [&](int d) { return d < 0 || t.shape[d] == 1 ? 0 : t.stride[d] * size; };
  return {bytes(batch), bytes(row), bytes(head)};
}

RowLayout token_layout(const Tensor& t, bool packed) {
  return packed ? row_layout(t, -1, 0, 1) : row_layout(t, 0, 1, 2);
}

RowLayout lse_layout(const Tensor& t, bool packed) { return packed ? row_layout(t, -1, 1, 0) : row_layout(t, 0, 2, 1); }

RowLayout scale_layout(const Tensor& t, ScaleGranularity kind, bool packed) {
  switch (kind) {
    case ScaleGranularity::token:
      return token_layout(t, packed);
    case ScaleGranularity::batch_head:
      return row_layout(t, 0, -1, 1);
    case ScaleGranularity::head:
      return row_layout(t, -1, -1, 0);
    case ScaleGranularity::tensor:
    case ScaleGranularity::none:
      break;
  }
  return {0, 0, 0};
}

}  // namespace onchip::cuda
