// Attention in float64, forward and backward, in plain loops written from docs/semantics.md and from nothing else.
// It reads the caller's tensors through their strides, packing and pages with code of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "onchip/onchip.hpp"

namespace onchip::test {

/// Row-major values of each result, in the shape of its tensor; empty where it was not asked for.
struct Results {
  std::vector<double> o, lse;
  std::vector<double> dq, dk, dv, dbias, dsink;
};

/// o and lse and, when `gradients`, every gradient that has an input. Ignores args.o and args.lse. `magnitudes` gets,
/// for each gradient, the sum of the absolute values of the terms that make it up: what rounding errors scale with,
/// however far the terms cancel.
Results exact_attention(const Attention& args, bool gradients, Results* magnitudes = nullptr);

/// Standard attention as a program in the input's type does it: f32 products and statistics, P and dS rounded to the
/// type of q, results to their own types. The backward pass starts from args.o and args.lse, as the library's does.
/// What its results lack against exact_attention() is the error that the library is measured by. Without `rounding`, P
/// and dS stay in f32: in small problems their roundings may cancel others by luck.
Results standard_attention(const Attention& args, bool gradients, bool rounding = true);

/// One sequence of the batch, as the reference understands the arguments.
struct Span {
  std::int64_t batch, begin_q, seqlen_q, begin_k, seqlen_k;
};
std::int64_t batch_size(const Attention& args);
Span span_of(const Attention& args, std::int64_t b);

/// Whether query i of head h may see key j (window, causal, mask).
bool may_see(const Attention& args, const Span& span, std::int64_t h, std::int64_t i, std::int64_t j);

/// The two leading indices of key j in k or v when they have rank 4, the first when packed (the second is then 0).
struct KeyIndex {
  std::int64_t first, second;
};
KeyIndex key_index(const Attention& args, const Span& span, std::int64_t j);

/// Offset in elements of a [d0, d1, d2, d3] index; the indices beyond the rank are not looked at.
std::int64_t offset(const Tensor& t, std::int64_t d0, std::int64_t d1 = 0, std::int64_t d2 = 0, std::int64_t d3 = 0);
/// Offset of element (row, head, column) of q, o, dout, dq: packed [row, head, column] or batched.
std::int64_t query_offset(const Tensor& t, const Span& span, std::int64_t i, std::int64_t h, std::int64_t c);
std::int64_t key_offset(const Attention& args, const Tensor& t, const Span& span, std::int64_t j, std::int64_t g,
                        std::int64_t c);

/// Number of elements.
std::int64_t element_count(const Tensor& t);
/// Calls visit(offset in elements, row-major position) for every element.
void for_each_element(const Tensor& t, const std::function<void(std::int64_t, std::int64_t)>& visit);

}  // namespace onchip::test
