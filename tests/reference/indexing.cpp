// How the reference finds its way through the arguments: sequences, strides, pages, visibility.
#include <algorithm>

#include "reference/attention.hpp"
#include "reference/formats.hpp"

namespace onchip::test {
namespace {

std::int64_t integer(const Tensor& t, std::int64_t d0, std::int64_t d1 = 0) {
  return static_cast<const std::int32_t*>(t.data)[offset(t, d0, d1)];
}

}  // namespace

std::int64_t offset(const Tensor& t, std::int64_t d0, std::int64_t d1, std::int64_t d2, std::int64_t d3) {
  const std::int64_t index[4] = {d0, d1, d2, d3};
  std::int64_t sum = 0;
  for (int d = 0; d < t.rank; ++d)
    if (t.shape[d] > 1) sum += index[d] * t.stride[d];
  return sum;
}

std::int64_t query_offset(const Tensor& t, const Span& span, std::int64_t i, std::int64_t h, std::int64_t c) {
  return t.rank == 3 ? offset(t, span.begin_q + i, h, c) : offset(t, span.batch, i, h, c);
}

std::int64_t key_offset(const Attention& args, const Tensor& t, const Span& span, std::int64_t j, std::int64_t g,
                        std::int64_t c) {
  const KeyIndex at = key_index(args, span, j);
  return args.k.rank == 3 ? offset(t, at.first, g, c) : offset(t, at.first, at.second, g, c);
}

std::int64_t element_count(const Tensor& t) {
  std::int64_t count = t.present();
  for (int d = 0; d < t.rank; ++d) count *= t.shape[d];
  return count;
}

void for_each_element(const Tensor& t, const std::function<void(std::int64_t, std::int64_t)>& visit) {
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  std::copy_n(t.shape.begin(), t.rank, shape.begin());
  if (element_count(t) == 0) return;
  std::int64_t position = 0;
  for (std::int64_t d0 = 0; d0 < shape[0]; ++d0)
    for (std::int64_t d1 = 0; d1 < shape[1]; ++d1)
      for (std::int64_t d2 = 0; d2 < shape[2]; ++d2)
        for (std::int64_t d3 = 0; d3 < shape[3]; ++d3) visit(offset(t, d0, d1, d2, d3), position++);
}

std::int64_t batch_size(const Attention& args) {
  return args.cu_seqlens_q.present() ? args.cu_seqlens_q.shape[0] - 1 : args.q.shape[0];
}

Span span_of(const Attention& args, std::int64_t b) {
  Span span{b, 0, 0, 0, 0};
  if (args.cu_seqlens_q.present()) {
    span.begin_q = integer(args.cu_seqlens_q, b);
    span.seqlen_q = integer(args.cu_seqlens_q, b + 1) - span.begin_q;
  } else {
    span.seqlen_q = args.q.shape[1];
  }
  if (args.cu_seqlens_k.present()) {
    span.begin_k = integer(args.cu_seqlens_k, b);
    span.seqlen_k = integer(args.cu_seqlens_k, b + 1) - span.begin_k;
  } else {
    span.seqlen_k = args.page_table.present() ? args.page_table.shape[1] * args.k.shape[1] : args.k.shape[1];
  }
  if (args.seqused_k.present()) span.seqlen_k = integer(args.seqused_k, b);
  return span;
}

KeyIndex key_index(const Attention& args, const Span& span, std::int64_t j) {
  if (args.cu_seqlens_k.present()) return {span.begin_k + j, 0};
  if (!args.page_table.present()) return {span.batch, j};
  const std::int64_t page_size = args.k.shape[1];
  return {integer(args.page_table, span.batch, j / page_size), j % page_size};
}

bool may_see(const Attention& args, const Span& span, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t shift = args.alignment == Alignment::top_left ? 0 : span.seqlen_k - span.seqlen_q;
  const std::int64_t d = j - (i + shift);
  if (args.causal && d > 0) return false;
  if (args.window_left >= 0 && d < -args.window_left) return false;
  if (args.window_right >= 0 && d > args.window_right) return false;
  const Tensor& mask = args.mask;
  return !mask.present() || decode(DType::boolean, mask.data, offset(mask, span.batch, h, i, j)) != 0;
}

}  // namespace onchip::test
