#include "support/tensor_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "reference/attention.hpp"
#include "reference/formats.hpp"

namespace onchip::test {
namespace {

constexpr std::int64_t kGuardElements = 64;

}  // namespace

Strides contiguous_strides(const std::vector<std::int64_t>& shape) {
  Strides result;
  result.stride.resize(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    result.stride[d] = stride;
    stride *= shape[d];
  }
  result.reach = std::max<std::int64_t>(stride, 0);
  return result;
}

Strides draw_strides(Rng& rng, const std::vector<std::int64_t>& shape, bool input, bool free_last) {
  if (rng.chance(0.3)) return contiguous_strides(shape);
  const std::size_t rank = shape.size();
  std::vector<std::size_t> order(rank);  // from innermost
  for (std::size_t d = 0; d < rank; ++d) order[d] = rank - 1 - d;
  const std::size_t fixed = free_last ? 0 : 1;
  if (rng.chance(0.5))
    for (std::size_t i = rank; i-- > fixed + 1;)
      std::swap(
          order[i],
          order[static_cast<std::size_t>(rng.integer(static_cast<std::int64_t>(fixed), static_cast<std::int64_t>(i)))]);
  const bool gaps = rng.chance(0.5), negative = input && rng.chance(0.2), zeros = input && rng.chance(0.15);
  Strides result;
  result.stride.assign(rank, 1);
  std::int64_t extent = 1;  // elements that the dimensions so far span
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t d = order[i];
    const bool innermost = i == 0 && !free_last;
    std::int64_t stride = innermost ? 1 : extent;
    if (!innermost && gaps && rng.chance(0.6)) stride += rng.integer(1, 3) * rng.pick({std::int64_t{1}, extent});
    if (!innermost && zeros && rng.chance(0.4)) stride = 0;
    const std::int64_t span = stride * std::max<std::int64_t>(shape[d] - 1, 0);
    extent += span;
    if (!innermost && negative && rng.chance(0.5)) {
      result.first += span;
      stride = -stride;
    }
    result.stride[d] = stride;
  }
  result.reach = extent;
  return result;
}

TensorBuffer::TensorBuffer(DType type, const std::vector<std::int64_t>& shape, const Strides& strides) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  view_.dtype = type;
  view_.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view_.shape.begin());
  std::copy(strides.stride.begin(), strides.stride.end(), view_.stride.begin());
  bytes_.assign(static_cast<std::size_t>((strides.reach + 2 * kGuardElements) * size), kPoison);
  first_byte_ = (kGuardElements + strides.first) * size;
}

void TensorBuffer::poison() { std::fill(bytes_.begin(), bytes_.end(), kPoison); }

void TensorBuffer::fill(const std::function<double()>& value) {
  const Tensor t = view();
  for_each_element(t, [&](std::int64_t at, std::int64_t) { encode(t.dtype, t.data, at, value()); });
}

void TensorBuffer::assign(const std::vector<double>& values) {
  const Tensor t = view();
  for_each_element(t, [&](std::int64_t at, std::int64_t position) {
    encode(t.dtype, t.data, at, values[static_cast<std::size_t>(position)]);
  });
}

std::vector<double> TensorBuffer::values() const {
  std::vector<double> result(static_cast<std::size_t>(element_count(view_)));
  const Tensor t = view();
  for_each_element(t, [&](std::int64_t at, std::int64_t position) {
    result[static_cast<std::size_t>(position)] = decode(t.dtype, t.data, at);
  });
  return result;
}

bool TensorBuffer::guard_broken() const {
  std::vector<std::byte> rest = bytes_;
  const auto size = static_cast<std::int64_t>(size_of(view_.dtype));
  std::byte* base = rest.data() + first_byte_;
  for_each_element(view_, [&](std::int64_t at, std::int64_t) { std::fill_n(base + at * size, size, kPoison); });
  return std::any_of(rest.begin(), rest.end(), [](std::byte byte) { return byte != kPoison; });
}

std::string describe(const Tensor& tensor) {
  const std::span shape(tensor.shape.begin(), static_cast<std::size_t>(tensor.rank));
  const std::span stride(tensor.stride.begin(), static_cast<std::size_t>(tensor.rank));
  const std::string text = fmt::format("[{}]", fmt::join(shape, ","));
  const Strides row_major = contiguous_strides({shape.begin(), shape.end()});
  if (std::equal(stride.begin(), stride.end(), row_major.stride.begin())) return text;
  return fmt::format("{}/({})", text, fmt::join(stride, ","));
}

}  // namespace onchip::test
