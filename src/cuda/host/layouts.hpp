// How kernels are told of tensors: element types and strides in bytes.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/problem.hpp"
#include "cuda/shared/element.hpp"
#include "cuda/shared/row_layout.hpp"

namespace onchip::cuda {

/// `none` for types that kernels do not compute with.
Element element(DType type);
const char* element_name(Element element);

/// As source code.
template <typename Enum>
std::string enumerator_text(const char* type, Enum value) {
  return fmt::format("static_cast<{}>({})", type, static_cast<int>(value));
}

/// Dimensions of a tensor that its batch, rows and heads are; −1: none.
RowLayout row_layout(const Tensor& tensor, int batch, int row, int head);
/// q, k, v, o and scales per token: [B, S, H, …], packed [total, H, …].
RowLayout token_layout(const Tensor& tensor, bool packed);
RowLayout lse_layout(const Tensor& tensor, bool packed);
RowLayout scale_layout(const Tensor& tensor, ScaleGranularity kind, bool packed);

}  // namespace onchip::cuda
