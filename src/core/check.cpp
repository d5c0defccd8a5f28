#include "core/check.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

namespace onchip {
namespace {

bool is_empty(const Tensor& tensor) {
  return std::any_of(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, [](std::int64_t n) { return n == 0; });
}

/// Addresses of a tensor that is not empty.
struct Extent {
  std::intptr_t first_element, last_element;  // of the first and the last index
  std::intptr_t begin, end;
  bool dense;  // no byte between belongs to nothing

  explicit Extent(const Tensor& tensor) {
    const auto element = static_cast<std::intptr_t>(size_of(tensor.dtype));
    std::intptr_t below = 0, above = 0, count = 1;
    for (int d = 0; d < tensor.rank; ++d) {
      const std::intptr_t span = tensor.shape[d] > 1 ? tensor.stride[d] * (tensor.shape[d] - 1) : 0;
      (span < 0 ? below : above) += span;
      count *= tensor.shape[d];
    }
    first_element = reinterpret_cast<std::intptr_t>(tensor.data);
    last_element = first_element + (below + above) * element;
    begin = first_element + below * element;
    end = first_element + (above + 1) * element;
    dense = end - begin == count * element;
  }

  bool has(std::intptr_t address) const { return begin <= address && address < end; }
  /// Certainly: slices of one tensor, which lie between each other, are apart.
  bool overlaps(const Extent& other) const {
    return first_element == other.first_element || (dense && (has(other.first_element) || has(other.last_element)));
  }
};

}  // namespace

std::string shape_text(const Tensor& tensor) {
  std::string text = "[";
  const int known = std::min(tensor.rank, static_cast<int>(tensor.shape.size()));
  for (int d = 0; d < known; ++d) text += (d ? ", " : "") + std::to_string(tensor.shape[d]);
  return text + (known < tensor.rank ? fmt::format(", …] (rank {})", tensor.rank) : "]");
}

Status check_rank(const char* name, const Tensor& tensor, int rank, const char* meaning) {
  if (tensor.rank != rank)
    return invalid("{}: shape {}, expected rank {}: {}", name, shape_text(tensor), rank, meaning);
  return {};
}

Status check_type(const char* tensor_name, const Tensor& tensor, DType type) {
  if (tensor.dtype != type) return invalid("{}: type {}, expected {}", tensor_name, name(tensor.dtype), name(type));
  return {};
}

Status check_shape(const char* name, const Tensor& tensor, std::initializer_list<std::int64_t> shape,
                   const char* meaning) {
  if (tensor.rank == static_cast<int>(shape.size()) && std::equal(shape.begin(), shape.end(), tensor.shape.begin()))
    return {};
  Tensor wanted{nullptr, tensor.dtype, static_cast<int>(shape.size()), {}, {}};
  std::copy(shape.begin(), shape.end(), wanted.shape.begin());
  return invalid("{}: shape {}, expected {} = {}", name, shape_text(tensor), meaning, shape_text(wanted));
}

Status check_overflow(const char* tensor_name, const Tensor& tensor) {
  if (size_of(tensor.dtype) == 0)
    return invalid("{}: type number {}, expected one of DType", tensor_name, static_cast<int>(tensor.dtype));
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
  bool empty = false;
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] < 0)
      return invalid("{}: shape {}, expected sizes of 0 or more", tensor_name, shape_text(tensor));
    empty = empty || tensor.shape[d] == 0;
  }
  std::int64_t count = element;
  std::int64_t reach = element;
  for (int d = 0; d < tensor.rank; ++d) {
    const std::int64_t size = std::max<std::int64_t>(tensor.shape[d], 1);
    bool fits = !__builtin_mul_overflow(count, size, &count);
    if (fits && size > 1 && !empty) {
      std::int64_t span = 0;
      fits = tensor.stride[d] != std::numeric_limits<std::int64_t>::min() &&
             !__builtin_mul_overflow(std::abs(tensor.stride[d]), size - 1, &span) &&
             !__builtin_mul_overflow(span, element, &span) && !__builtin_add_overflow(reach, span, &reach);
    }
    if (!fits) return invalid("{}: shape {}, expected fewer than 2^63 bytes", tensor_name, shape_text(tensor));
  }
  return {};
}

Status check_view(const char* name, const Tensor& tensor) {
  ONCHIP_RETURN_IF_ERROR(check_overflow(name, tensor));
  const int last = tensor.rank - 1;
  if (!is_empty(tensor) && tensor.shape[last] > 1 && tensor.stride[last] != 1)
    return invalid("{}: stride {} in the last dimension, expected 1 (contiguous)", name, tensor.stride[last]);
  return {};
}

Status check_data(const char* tensor_name, const Tensor& tensor, Use use) {
  if (tensor.data == nullptr && use == Use::run && !is_empty(tensor))
    return invalid("{}: data is null, expected the address of a {} tensor of type {}", tensor_name, shape_text(tensor),
                   name(tensor.dtype));
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(tensor.dtype) != 0)
    return invalid("{}: data is at {}, expected a multiple of {} bytes", tensor_name, tensor.data,
                   size_of(tensor.dtype));
  return {};
}

Status check_writable(const char* name, const Tensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // |stride|, size
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] == 0) return {};
    if (tensor.shape[d] > 1) dimensions.emplace_back(std::abs(tensor.stride[d]), tensor.shape[d]);
  }
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t reach = 0;  // farthest element of the dimensions so far
  for (const auto& [stride, size] : dimensions) {
    if (stride <= reach)
      return invalid("{}: stride {} over size {}, expected an output whose elements do not overlap", name, stride,
                     size);
    reach += stride * (size - 1);
  }
  return {};
}

Status check_apart(std::initializer_list<NamedOutput> outputs) {
  for (auto one = outputs.begin(); one != outputs.end(); ++one)
    for (auto other = outputs.begin(); other != one; ++other) {
      const Tensor &a = one->tensor, &b = other->tensor;
      if (!a.present() || !b.present() || a.data == nullptr || b.data == nullptr || is_empty(a) || is_empty(b))
        continue;
      const Extent x(a), y(b);
      if (x.overlaps(y) || y.overlaps(x))
        return invalid("{}: data at {} overlaps {} at {}, expected outputs in memory of their own", one->name, a.data,
                       other->name, b.data);
    }
  return {};
}

}  // namespace onchip
