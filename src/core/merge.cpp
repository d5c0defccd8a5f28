#include "core/merge.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "core/check.hpp"
#include "core/rows.hpp"
#include "core/softmax_state.hpp"
#include "core/threads.hpp"
#include "core/workspace.hpp"
#include "cuda/device_steps.hpp"

namespace onchip {
namespace {

bool is_result_type(DType t) { return t == DType::f64 || t == DType::f32 || t == DType::bf16 || t == DType::f16; }

bool is_lse_type(DType t) { return t == DType::f64 || t == DType::f32; }

bool same_shape(const Tensor& a, const Tensor& b) {
  return a.rank == b.rank && std::equal(a.shape.begin(), a.shape.begin() + a.rank, b.shape.begin());
}

/// An output may be one of the parts, but then it must be exactly that part: each row is read before it is written.
bool aliases_inexactly(const Tensor& output, const Tensor& part) {
  if (output.data == nullptr || output.data != part.data) return false;
  if (output.dtype != part.dtype) return true;
  for (int d = 0; d < output.rank; ++d)
    if (output.shape[d] > 1 && output.stride[d] != part.stride[d]) return true;
  return false;
}

Status check_result(const std::string& name, const Tensor& o) {
  if (o.rank != 3 && o.rank != 4)
    return invalid("{}: shape {}, expected [B, S, H, D] or packed [T, H, D]", name, shape_text(o));
  ONCHIP_RETURN_IF_ERROR(check_view(name.c_str(), o));
  if (!is_result_type(o.dtype))
    return invalid("{}: type {}, expected f64, f32, bf16 or f16", name, onchip::name(o.dtype));
  return check_data(name.c_str(), o, Use::run);
}

/// [B, H, S] beside [B, S, H, D], [H, T] beside [T, H, D].
Status check_lse(const std::string& name, const Tensor& lse, const Tensor& o) {
  if (!lse.present()) return invalid("{}: missing, expected the lse of every part", name);
  if (o.rank == 4)
    ONCHIP_RETURN_IF_ERROR(check_shape(name.c_str(), lse, {o.shape[0], o.shape[2], o.shape[1]}, "[B, H, S]"));
  else
    ONCHIP_RETURN_IF_ERROR(check_shape(name.c_str(), lse, {o.shape[1], o.shape[0]}, "[H, T]"));
  ONCHIP_RETURN_IF_ERROR(check_overflow(name.c_str(), lse));
  if (!is_lse_type(lse.dtype)) return invalid("{}: type {}, expected f32 or f64", name, onchip::name(lse.dtype));
  return check_data(name.c_str(), lse, Use::run);
}

Status check_part(std::size_t i, const Tensor& o_part, const Tensor& lse_part, const Tensor& o, const Tensor& lse) {
  const std::string o_name = fmt::format("o_parts[{}]", i);
  const std::string lse_name = fmt::format("lse_parts[{}]", i);
  ONCHIP_RETURN_IF_ERROR(check_result(o_name, o_part));
  if (!same_shape(o_part, o))
    return invalid("{}: shape {}, expected {} as o has", o_name, shape_text(o_part), shape_text(o));
  ONCHIP_RETURN_IF_ERROR(check_lse(lse_name, lse_part, o));
  if (aliases_inexactly(o, o_part))
    return invalid("o: same address as {} but other strides or type, expected exactly that part or other memory",
                   o_name);
  if (lse.present() && aliases_inexactly(lse, lse_part))
    return invalid("lse: same address as {} but other strides or type, expected exactly that part or other memory",
                   lse_name);
  return {};
}

Status check_merge(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                   const Tensor& lse) {
  if (o_parts.empty()) return invalid("o_parts: 0 parts, expected at least 1");
  if (o_parts.size() != lse_parts.size())
    return invalid("lse_parts: {} parts, expected {} as o_parts has", lse_parts.size(), o_parts.size());
  ONCHIP_RETURN_IF_ERROR(check_result("o", o));
  ONCHIP_RETURN_IF_ERROR(check_writable("o", o));
  if (lse.present()) {
    ONCHIP_RETURN_IF_ERROR(check_lse("lse", lse, o));
    ONCHIP_RETURN_IF_ERROR(check_writable("lse", lse));
  }
  for (std::size_t i = 0; i < o_parts.size(); ++i)
    ONCHIP_RETURN_IF_ERROR(check_part(i, o_parts[i], lse_parts[i], o, lse));
  return {};
}

/// One row of the result; a packed tensor is a batch of one.
struct Row {
  std::int64_t batch, position, head;
};

std::byte* o_row(const Tensor& o, const Row& row) {
  const bool packed = o.rank == 3;
  const std::int64_t offset = (packed ? 0 : row.batch * o.stride[0]) + row.position * o.stride[packed ? 0 : 1] +
                              row.head * o.stride[packed ? 1 : 2];
  return static_cast<std::byte*>(o.data) + offset * static_cast<std::int64_t>(size_of(o.dtype));
}

std::byte* lse_row(const Tensor& lse, const Row& row) {
  const bool packed = lse.rank == 2;
  const std::int64_t offset = (packed ? 0 : row.batch * lse.stride[0]) + row.head * lse.stride[packed ? 0 : 1] +
                              row.position * lse.stride[packed ? 1 : 2];
  return static_cast<std::byte*>(lse.data) + offset * static_cast<std::int64_t>(size_of(lse.dtype));
}

template <typename Real>
Real lse_value(const Tensor& lse, const Row& row) {
  return static_cast<Real>(load_element(lse.dtype, lse_row(lse, row), 0));
}

template <typename Real>
void merge_row(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o, const Tensor& lse,
               const Row& row) {
  constexpr std::int64_t kChunk = 256;
  SoftmaxState<Real> state;
  for (const Tensor& part : lse_parts) state.see(lse_value<Real>(part, row));
  for (const Tensor& part : lse_parts) state.add(lse_value<Real>(part, row));
  const std::int64_t head_dim = o.shape[o.rank - 1];
  for (std::int64_t begin = 0; begin < head_dim; begin += kChunk) {
    const std::int64_t size = std::min(kChunk, head_dim - begin);
    alignas(kCacheLine) std::array<Real, kChunk> sum{};
    alignas(kCacheLine) std::array<Real, kChunk> weighted;
    for (std::size_t i = 0; i < o_parts.size(); ++i) {
      const Real part_lse = lse_value<Real>(lse_parts[i], row);
      if (SoftmaxState<Real>::is_empty(part_lse)) continue;
      const DType type = o_parts[i].dtype;
      const std::byte* part = o_row(o_parts[i], row) + begin * static_cast<std::int64_t>(size_of(type));
      load_row(type, part, size, state.weight(part_lse), weighted.data());
      for (std::int64_t d = 0; d < size; ++d) sum[d] += weighted[d];
    }
    store_row(o.dtype, sum.data(), size, o_row(o, row) + begin * static_cast<std::int64_t>(size_of(o.dtype)));
  }
  if (lse.present()) store_element(lse.dtype, lse_row(lse, row), 0, static_cast<double>(state.lse()));
}

template <typename Real>
void merge_rows(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                const Tensor& lse) {
  constexpr std::int64_t kElementsPerTask = 1 << 15;
  const bool packed = o.rank == 3;
  const std::int64_t positions = o.shape[packed ? 0 : 1];
  const std::int64_t heads = o.shape[packed ? 1 : 2];
  const std::int64_t rows = (packed ? 1 : o.shape[0]) * positions * heads;
  const std::int64_t row_elements = o.shape[o.rank - 1] * static_cast<std::int64_t>(o_parts.size());
  const std::int64_t task_rows = std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, row_elements));
  const std::int64_t tasks = (rows + task_rows - 1) / task_rows;
  parallel_tasks(tasks, available_threads(), [&](std::int64_t task, int) {
    const std::int64_t end = std::min(rows, (task + 1) * task_rows);
    for (std::int64_t r = task * task_rows; r < end; ++r)
      merge_row<Real>(o_parts, lse_parts, o, lse, {r / heads / positions, r / heads % positions, r % heads});
  });
}

}  // namespace

Status merge_parts(std::span<const Tensor> o_parts, std::span<const Tensor> lse_parts, const Tensor& o,
                   const Tensor& lse, int device, void* stream) {
  ONCHIP_RETURN_IF_ERROR(check_merge(o_parts, lse_parts, o, lse));
  if (device >= 0) return cuda::queue_merge(o_parts, lse_parts, o, lse, device, stream);
  const auto is_double = [](const Tensor& tensor) { return tensor.dtype == DType::f64; };
  const bool in_double = is_double(o) || is_double(lse) || std::any_of(o_parts.begin(), o_parts.end(), is_double) ||
                         std::any_of(lse_parts.begin(), lse_parts.end(), is_double);
  if (in_double)
    merge_rows<double>(o_parts, lse_parts, o, lse);
  else
    merge_rows<float>(o_parts, lse_parts, o, lse);
  return {};
}

}  // namespace onchip
