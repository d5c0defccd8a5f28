// Checks of one tensor that Problem is made of. Each failure names the tensor, what it has and what was expected.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/problem.hpp"

namespace onchip {

/// "[2, 64, 8, 128]"
std::string shape_text(const Tensor& tensor);

Status check_rank(const char* name, const Tensor& tensor, int rank, const char* meaning);
Status check_type(const char* name, const Tensor& tensor, DType type);
Status check_shape(const char* name, const Tensor& tensor, std::initializer_list<std::int64_t> shape,
                   const char* meaning);
/// No negative size, no more elements or farther offsets than 64 bits can count.
Status check_overflow(const char* name, const Tensor& tensor);
/// check_overflow, and the last dimension is contiguous.
Status check_view(const char* name, const Tensor& tensor);
/// With Use::run: elements have an address; always: it is aligned to the type.
Status check_data(const char* name, const Tensor& tensor, Use use);
/// No two elements share memory.
Status check_writable(const char* name, const Tensor& tensor);

struct NamedOutput {
  const char* name;
  const Tensor& tensor;
};
/// No two outputs share memory, as far as their addresses tell for certain.
Status check_apart(std::initializer_list<NamedOutput> outputs);

}  // namespace onchip
