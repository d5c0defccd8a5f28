#include "core/views.hpp"

namespace onchip {
namespace {

std::int64_t byte_stride(const Tensor& tensor, int dimension) {
  return tensor.stride[dimension] * static_cast<std::int64_t>(size_of(tensor.dtype));
}

std::byte* bytes(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data); }

}  // namespace

QueryRows::QueryRows(const Problem& problem, const Tensor& tensor) : base_(bytes(tensor)) {
  const bool packed = problem.layout_q == Layout::packed;
  batch_bytes_ = packed ? 0 : byte_stride(tensor, 0);
  row_bytes_ = byte_stride(tensor, packed ? 0 : 1);
  head_bytes_ = byte_stride(tensor, packed ? 1 : 2);
}

KeyRows::KeyRows(const Problem& problem, const Tensor& tensor) : base_(bytes(tensor)) {
  const bool packed = problem.layout_k == Layout::packed;
  batch_bytes_ = packed ? 0 : byte_stride(tensor, 0);
  row_bytes_ = byte_stride(tensor, packed ? 0 : 1);
  head_bytes_ = byte_stride(tensor, packed ? 1 : 2);
  const Tensor& table = problem.args.page_table;
  page_size_ = problem.page_size;
  page_table_ = static_cast<const std::int32_t*>(table.data);
  page_table_stride_ = table.stride[0];
  page_index_stride_ = table.stride[1];
}

LseRows::LseRows(const Problem& problem, const Tensor& tensor) : base_(bytes(tensor)) {
  const bool packed = problem.layout_q == Layout::packed;
  batch_bytes_ = packed ? 0 : byte_stride(tensor, 0);
  head_bytes_ = byte_stride(tensor, packed ? 0 : 1);
  row_bytes_ = byte_stride(tensor, packed ? 1 : 2);
}

ScoreRows::ScoreRows(const Tensor& tensor)
    : base_(bytes(tensor)),
      batch_bytes_(tensor.shape[0] == 1 ? 0 : byte_stride(tensor, 0)),
      head_bytes_(tensor.shape[1] == 1 ? 0 : byte_stride(tensor, 1)),
      row_bytes_(byte_stride(tensor, 2)) {}

KeyScales::KeyScales(const Problem& problem, const Tensor& tensor, ScaleGranularity kind)
    : kind_(kind), tokens_(problem, tensor), base_(static_cast<const float*>(tensor.data)) {
  const bool per_head = kind == ScaleGranularity::head;
  const bool per_batch_head = kind == ScaleGranularity::batch_head;
  batch_stride_ = per_batch_head ? tensor.stride[0] : 0;
  head_stride_ = per_batch_head ? tensor.stride[1] : per_head ? tensor.stride[0] : 0;
}

float KeyScales::at(const Sequence& sequence, std::int64_t j, std::int64_t head) const {
  if (kind_ == ScaleGranularity::none) return 1.0f;
  if (kind_ == ScaleGranularity::token) return *token(sequence, j, head);
  return base_[sequence.batch * batch_stride_ + head * head_stride_];
}

float alibi_slope(const Problem& problem, const Sequence& sequence, std::int64_t head) {
  const Tensor& slopes = problem.args.alibi_slopes;
  const auto* data = static_cast<const float*>(slopes.data);
  if (slopes.rank == 1) return data[head * slopes.stride[0]];
  return data[sequence.batch * slopes.stride[0] + head * slopes.stride[1]];
}

float sink_logit(const Problem& problem, std::int64_t head) {
  const Tensor& sink = problem.args.sink;
  return static_cast<const float*>(sink.data)[head * sink.stride[0]];
}

}  // namespace onchip
