// Every rule of the contract, each with what its message must name: the argument, the value and what was expected.
#include "core/problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "support/cases.hpp"

namespace onchip::test {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

/// B 2, Sq 3, Sk 5, Hq 4, Hk 2, D 8, Dv 6.
Case batched(DType type = DType::f32, DType kv_type = DType::f32) {
  Case c;
  c.q = TensorBuffer(type, {2, 3, 4, 8});
  c.k = TensorBuffer(kv_type, {2, 5, 2, 8});
  c.v = TensorBuffer(kv_type, {2, 5, 2, 6});
  c.options.num_threads = 1;
  return c;
}

Case packed() {
  Case c = batched();
  c.q = TensorBuffer(DType::f32, {6, 4, 8});
  c.k = TensorBuffer(DType::f32, {10, 2, 8});
  c.v = TensorBuffer(DType::f32, {10, 2, 6});
  c.cu_seqlens_q = TensorBuffer(DType::i32, {3});
  c.cu_seqlens_q.assign({0, 2, 6});
  c.cu_seqlens_k = TensorBuffer(DType::i32, {3});
  c.cu_seqlens_k.assign({0, 7, 10});
  return c;
}

Case paged() {
  Case c = batched();
  c.k = TensorBuffer(DType::f32, {5, 2, 2, 8});
  c.v = TensorBuffer(DType::f32, {5, 2, 2, 6});
  c.page_table = TensorBuffer(DType::i32, {2, 3});
  c.page_table.assign({4, 0, 1, 3, 2, -7});
  c.seqused_k = TensorBuffer(DType::i32, {2});
  c.seqused_k.assign({5, 4});
  return c;
}

Case quantised() {
  Case c = batched(DType::f32, DType::i8);
  c.k_scale = TensorBuffer(DType::f32, {2});
  c.v_scale = TensorBuffer(DType::f32, {2, 2});
  return c;
}

Status make(const Attention& args, Pass pass = Pass::forward, Use use = Use::run) {
  Problem problem;
  return make_problem(args, pass, use, problem);
}

/// What is changed, and what the one-line message must contain.
struct Bad {
  std::function<void(Attention&)> change;
  std::vector<const char*> parts;
  StatusCode code = StatusCode::invalid_argument;
};

void expect_refused(const Attention& good, const std::vector<Bad>& list, Pass pass = Pass::forward) {
  const Status fine = make(good, pass);
  ASSERT_TRUE(fine.ok()) << fine.message();
  for (const Bad& bad : list) {
    Attention args = good;
    bad.change(args);
    const Status status = make(args, pass);
    EXPECT_EQ(status.code(), bad.code) << bad.parts[0];
    for (const char* part : bad.parts)
      EXPECT_NE(status.message().find(part), std::string::npos) << "'" << part << "' in: " << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
}

void expect_accepted(const Attention& args, Pass pass = Pass::forward, Use use = Use::run) {
  const Status status = make(args, pass, use);
  EXPECT_TRUE(status.ok()) << status.message();
}

template <typename Number>
Tensor filled(std::vector<Number>& memory, DType type) {
  return contiguous(memory.data(), type, {static_cast<std::int64_t>(memory.size())});
}

TEST(Problem, ReadsShapes) {
  Case c = batched();
  add_results(c, false);
  Problem p;
  ASSERT_TRUE(make_problem(c.forward_args(), Pass::forward, Use::run, p).ok());
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.num_heads_q, 4);
  EXPECT_EQ(p.num_heads_kv, 2);
  EXPECT_EQ(p.heads_per_kv(), 2);
  EXPECT_EQ(p.head_dim, 8);
  EXPECT_EQ(p.head_dim_v, 6);
  EXPECT_EQ(p.max_seqlen_q, 3);
  EXPECT_EQ(p.max_seqlen_k, 5);
  EXPECT_DOUBLE_EQ(p.softmax_scale, 1 / std::sqrt(8.0));
  EXPECT_EQ(p.sequence(1).seqlen_k, 5);
  EXPECT_EQ(p.sequence(1).mask.shift, 2);

  c = packed();
  add_results(c, false);
  ASSERT_TRUE(make_problem(c.forward_args(), Pass::forward, Use::run, p).ok());
  EXPECT_EQ(p.max_seqlen_q, 4);
  EXPECT_EQ(p.max_seqlen_k, 7);
  EXPECT_EQ(p.sequence(1).begin_q, 2);
  EXPECT_EQ(p.sequence(1).seqlen_q, 4);
  EXPECT_EQ(p.sequence(1).begin_k, 7);
  EXPECT_EQ(p.sequence(1).seqlen_k, 3);

  c = paged();
  add_results(c, false);
  ASSERT_TRUE(make_problem(c.forward_args(), Pass::forward, Use::run, p).ok());
  EXPECT_EQ(p.page_size, 2);
  EXPECT_EQ(p.max_seqlen_k, 5);
  EXPECT_EQ(p.sequence(1).seqlen_k, 4);
}

TEST(Problem, CausalFoldsIntoTheWindow) {
  Case c = batched();
  add_results(c, false);
  Problem p;
  Attention a = c.forward_args();
  a.causal = true, a.window_left = 2, a.window_right = 7;
  ASSERT_TRUE(make_problem(a, Pass::forward, Use::run, p).ok());
  EXPECT_EQ(p.window_left, 2);
  EXPECT_EQ(p.window_right, 0);
  a.alignment = Alignment::top_left;
  ASSERT_TRUE(make_problem(a, Pass::forward, Use::run, p).ok());
  EXPECT_EQ(p.sequence(0).mask.shift, 0);
  a.causal = false, a.window_left = a.window_right = kLargest;
  ASSERT_TRUE(make_problem(a, Pass::forward, Use::run, p).ok());
  EXPECT_EQ(p.sequence(0).mask.keys(0).size(), 5);
}

TEST(Problem, RefusesBadOptions) {
  Case c = batched();
  add_results(c, false);
  expect_refused(c.forward_args(),
                 {
                     {[](Attention& a) { a.softmax_scale = std::nan(""); }, {"softmax_scale", "finite", "nan"}},
                     {[](Attention& a) { a.softmax_scale = -HUGE_VAL; }, {"softmax_scale", "finite", "-inf"}},
                     {[](Attention& a) { a.softcap = -1.5; }, {"softcap", "0 (none) or a positive", "-1.5"}},
                     {[](Attention& a) { a.softcap = std::nan(""); }, {"softcap", "nan"}},
                     {[](Attention& a) { a.softcap = HUGE_VAL; }, {"softcap", "finite", "inf"}},
                     {[](Attention& a) { a.window_left = -2; }, {"window_left", "−1 (no bound) or more", "-2"}},
                     {[](Attention& a) { a.window_right = -9; }, {"window_right", "−1 (no bound) or more", "-9"}},
                     {[](Attention& a) { a.num_threads = -1; }, {"num_threads", "0 (all) or more", "-1"}},
                 });
}

TEST(Problem, RefusesBadQueries) {
  Case c = batched();
  add_results(c, false);
  expect_refused(c.forward_args(),
                 {
                     {[](Attention& a) { a.q = {}; }, {"q: missing", "[B, Sq, Hq, D]"}},
                     {[](Attention& a) { a.q.dtype = DType::i32; }, {"q: type i32", "f64, f32, bf16, f16 or e4m3"}},
                     {[](Attention& a) { a.q.dtype = DType::e5m2; }, {"q: type e5m2", "expected"}},
                     {[](Attention& a) { a.q.rank = 3; }, {"q: shape [2, 3, 4]", "rank 4", "[B, Sq, Hq, D]"}},
                     {[](Attention& a) { a.q.shape[2] = 0; }, {"q: 0 heads", "at least 1"}},
                     {[](Attention& a) { a.q.shape[3] = 0; }, {"q: head dimension 0", "at least 1"}},
                     {[](Attention& a) { a.q.shape[1] = -3; }, {"q: shape [2, -3, 4, 8]", "0 or more"}},
                     {[](Attention& a) { a.q.stride[3] = 2; }, {"q: stride 2", "last dimension", "1"}},
                     {[](Attention& a) { a.q.shape[0] = kLargest; }, {"q: shape", "2^63"}},
                     {[](Attention& a) { a.q.stride[0] = kLargest / 2; }, {"q: shape", "2^63"}},
                     {[](Attention& a) { a.q.stride[0] = std::numeric_limits<std::int64_t>::min(); }, {"q", "2^63"}},
                     {[](Attention& a) { a.q.data = nullptr; }, {"q: data is null", "[2, 3, 4, 8]", "f32"}},
                     {[](Attention& a) { a.q.data = static_cast<char*>(a.q.data) + 1; }, {"q: data", "multiple of 4"}},
                     {[](Attention& a) { a.q.dtype = static_cast<DType>(99); }, {"q: type", "expected"}},
                 });
}

TEST(Problem, RefusesBadKeysAndValues) {
  Case c = batched();
  add_results(c, false);
  expect_refused(
      c.forward_args(),
      {
          {[](Attention& a) { a.k = {}; }, {"k: missing", "paged"}},
          {[](Attention& a) { a.v = {}; }, {"v: missing", "Dv"}},
          {[](Attention& a) { a.k.rank = 3; }, {"k: shape [2, 5, 2]", "rank 4"}},
          {[](Attention& a) { a.v.rank = 3; }, {"v: shape [2, 5, 2]", "rank 4", "rank of k"}},
          {[](Attention& a) { a.v.shape[1] = 4; }, {"v: shape [2, 4, 2, 6]", "[2, 5, 2, 8]"}},
          {[](Attention& a) { a.k.shape[2] = a.v.shape[2] = 0; }, {"k: 0 heads", "at least 1"}},
          {[](Attention& a) { a.v.shape[3] = 0; }, {"v: head dimension 0", "at least 1"}},
          {[](Attention& a) { a.k.shape[3] = 7; }, {"k: shape [2, 5, 2, 7]", "last dimension 8"}},
          {[](Attention& a) { a.k.shape[2] = a.v.shape[2] = 3; }, {"q: 4 heads", "multiple of the 3 heads of k"}},
          {[](Attention& a) { a.k.dtype = DType::bf16; }, {"k: type bf16", "f32", "i8, e4m3 or e5m2"}},
          {[](Attention& a) { a.v.dtype = DType::f16; }, {"v: type f16", "f32 as k has"}},
          {[](Attention& a) { a.k.shape[0] = a.v.shape[0] = 3; }, {"k: 3 sequences", "2 as q has"}},
          {[](Attention& a) { a.k.stride[3] = 3; }, {"k: stride 3", "1 (contiguous)"}},
          {[](Attention& a) { a.v.stride[3] = -1; }, {"v: stride -1", "1 (contiguous)"}},
          {[](Attention& a) { a.k.data = nullptr; }, {"k: data is null"}},
          {[](Attention& a) { a.v.data = nullptr; }, {"v: data is null"}},
      });
}

TEST(Problem, RefusesBadPackedSequences) {
  Case c = packed();
  add_results(c, false);
  std::vector<std::int32_t> from_one{1, 2, 6}, falling{0, 7, 5}, short_total{0, 2, 5}, long_total{0, 2, 11},
      four{0, 1, 2, 6};
  expect_refused(c.forward_args(),
                 {
                     {[&](Attention& a) { a.cu_seqlens_q = filled(from_one, DType::i32); },
                      {"cu_seqlens_q", "begins with 1", "0"}},
                     {[&](Attention& a) { a.cu_seqlens_k = filled(falling, DType::i32); },
                      {"cu_seqlens_k", "decreases from 7 to 5", "index 2"}},
                     {[&](Attention& a) { a.cu_seqlens_q = filled(short_total, DType::i32); },
                      {"cu_seqlens_q", "ends with 5", "6", "first dimension of q"}},
                     {[&](Attention& a) { a.cu_seqlens_k = filled(long_total, DType::i32); },
                      {"cu_seqlens_k", "ends with 11", "10", "first dimension of k"}},
                     {[&](Attention& a) { a.cu_seqlens_q = filled(four, DType::i32); },
                      {"cu_seqlens_k: 2 sequences", "3 as q has"}},
                     {[](Attention& a) { a.cu_seqlens_q.dtype = DType::f32; }, {"cu_seqlens_q: type f32", "i32"}},
                     {[](Attention& a) { a.cu_seqlens_q.shape[0] = 0; }, {"cu_seqlens_q: shape [0]", "[B+1]"}},
                     {[](Attention& a) { a.cu_seqlens_q.rank = 2; }, {"cu_seqlens_q: shape", "rank 1"}},
                     {[](Attention& a) { a.cu_seqlens_q.stride[0] = 2; }, {"cu_seqlens_q: stride 2"}},
                     {[](Attention& a) { a.cu_seqlens_k.data = nullptr; }, {"cu_seqlens_k: data is null"}},
                     {[](Attention& a) { a.cu_seqlens_q = {}; }, {"q: shape [6, 4, 8]", "rank 4"}},
                     {[](Attention& a) { a.cu_seqlens_k = {}; }, {"k: shape [10, 2, 8]", "rank 4"}},
                 });
}

TEST(Problem, RefusesBadPages) {
  Case c = paged();
  add_results(c, false);
  std::vector<std::int32_t> negative{4, -1, 1, 3, 2, 0}, outside{4, 0, 1, 3, 5, 0}, one{1}, past{7, 0}, below{0, -1};
  const auto table = [](std::vector<std::int32_t>& memory) { return contiguous(memory.data(), DType::i32, {2, 3}); };
  expect_refused(
      c.forward_args(),
      {
          {[&](Attention& a) { a.page_table = table(negative); }, {"page_table: page -1 at [0, 1]", "0 to 4"}},
          {[&](Attention& a) { a.page_table = table(outside); }, {"page_table: page 5 at [1, 1]", "0 to 4"}},
          {[&](Attention& a) { a.seqused_k = {}; }, {"page_table: page -7 at [1, 2]", "0 to 4"}},
          {[](Attention& a) { a.page_table.dtype = DType::f32; }, {"page_table: type f32", "i32"}},
          {[](Attention& a) { a.page_table.rank = 1; }, {"page_table: shape [2]", "rank 2", "[B, max_pages]"}},
          {[](Attention& a) { a.page_table.shape[0] = 3; }, {"page_table: 3 sequences", "2 as q has"}},
          {[](Attention& a) { a.page_table.data = nullptr; }, {"page_table: data is null"}},
          {[](Attention& a) { a.k.shape[1] = a.v.shape[1] = 0; }, {"k: page size 0", "at least 1"}},
          {[&](Attention& a) { a.cu_seqlens_k = filled(one, DType::i32); }, {"page_table", "cu_seqlens_k", "not both"}},
          {[&](Attention& a) { a.seqused_k = filled(past, DType::i32); }, {"seqused_k: 7 at index 0", "0 to 6"}},
          {[&](Attention& a) { a.seqused_k = filled(below, DType::i32); }, {"seqused_k: -1 at index 1", "0 to 6"}},
          {[&](Attention& a) { a.seqused_k = filled(one, DType::i32); }, {"seqused_k: shape [1]", "[B] = [2]"}},
          {[](Attention& a) { a.seqused_k.dtype = DType::f32; }, {"seqused_k: type f32", "i32"}},
          {[](Attention& a) { a.seqused_k.data = nullptr; }, {"seqused_k: data is null"}},
      });
}

TEST(Problem, RefusesBadScoreTerms) {
  Case c = batched();
  c.bias = TensorBuffer(DType::f32, {1, 4, 3, 5});
  c.mask = TensorBuffer(DType::boolean, {2, 1, 3, 5});
  c.alibi_slopes = TensorBuffer(DType::f32, {2, 4});
  c.sink = TensorBuffer(DType::f32, {4});
  add_results(c, false);
  expect_refused(
      c.forward_args(),
      {
          {[](Attention& a) { a.bias.dtype = DType::f64; }, {"bias: type f64", "f32, bf16 or f16"}},
          {[](Attention& a) { a.bias.shape[0] = 3; }, {"bias: shape [3, 4, 3, 5]", "[1 or 2, 1 or 4, 3, 5]"}},
          {[](Attention& a) { a.bias.shape[1] = 2; }, {"bias: shape [1, 2, 3, 5]", "1 or 4"}},
          {[](Attention& a) { a.bias.shape[2] = 4; }, {"bias: shape [1, 4, 4, 5]", ", 3, 5]"}},
          {[](Attention& a) { a.bias.shape[3] = 6; }, {"bias: shape [1, 4, 3, 6]", ", 3, 5]"}},
          {[](Attention& a) { a.bias.rank = 3; }, {"bias: shape [1, 4, 3]", "rank 4"}},
          {[](Attention& a) { a.bias.stride[3] = 2; }, {"bias: stride 2"}},
          {[](Attention& a) { a.bias.data = nullptr; }, {"bias: data is null"}},
          {[](Attention& a) { a.mask.dtype = DType::i8; }, {"mask: type i8", "bool"}},
          {[](Attention& a) { a.mask.shape[3] = 4; }, {"mask: shape [2, 1, 3, 4]", "1 or 2"}},
          {[](Attention& a) { a.mask.data = nullptr; }, {"mask: data is null"}},
          {[](Attention& a) { a.alibi_slopes.dtype = DType::f16; }, {"alibi_slopes: type f16", "f32"}},
          {[](Attention& a) { a.alibi_slopes.shape[1] = 3; }, {"alibi_slopes: shape [2, 3]", "[2, 4]"}},
          {[](Attention& a) { a.alibi_slopes.rank = 1; }, {"alibi_slopes: shape [2]", "[Hq] or [B, Hq]"}},
          {[](Attention& a) { a.alibi_slopes.data = nullptr; }, {"alibi_slopes: data is null"}},
          {[](Attention& a) { a.sink.dtype = DType::bf16; }, {"sink: type bf16", "f32"}},
          {[](Attention& a) { a.sink.shape[0] = 2; }, {"sink: shape [2]", "[Hq] = [4]"}},
          {[](Attention& a) { a.sink.data = nullptr; }, {"sink: data is null"}},
      });
}

/// With sequences of many lengths a bias may be larger than the longest, not smaller.
TEST(Problem, ScoreTermsOfPackedSequencesCoverTheLongest) {
  Case c = packed();
  c.bias = TensorBuffer(DType::f32, {1, 1, 5, 9});
  add_results(c, false);
  expect_refused(c.forward_args(),
                 {{[](Attention& a) { a.bias.shape[2] = 3; }, {"bias: shape [1, 1, 3, 9]", "at least 4"}},
                  {[](Attention& a) { a.bias.shape[3] = 6; }, {"bias", "at least 7"}}});
}

TEST(Problem, RefusesBadScales) {
  Case c = quantised();
  add_results(c, false);
  expect_refused(
      c.forward_args(),
      {
          {[](Attention& a) { a.k_scale = {}; }, {"k_scale: missing", "i8"}},
          {[](Attention& a) { a.v_scale = {}; }, {"v_scale: missing", "i8"}},
          {[](Attention& a) { a.k_scale.dtype = DType::f16; }, {"k_scale: type f16", "f32"}},
          {[](Attention& a) { a.k_scale.shape[0] = 3; }, {"k_scale: shape [3]", "[1], [2], [2, 2]", "per token"}},
          {[](Attention& a) { a.v_scale.shape[1] = 3; }, {"v_scale: shape [2, 3]", "[2, 2]"}},
          {[](Attention& a) { a.v_scale.data = nullptr; }, {"v_scale: data is null"}},
      });
  Case plain = batched();
  plain.k_scale = TensorBuffer(DType::f32, {1});
  add_results(plain, false);
  const Status status = make(plain.forward_args());
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_NE(status.message().find("k_scale: given for keys and values of type f32"), std::string::npos);
}

TEST(Problem, TellsScaleGranularitiesApart) {
  using Shape = std::vector<std::int64_t>;
  for (const auto& [shape, kind] : {std::pair{Shape{1}, ScaleGranularity::tensor},
                                    {Shape{2}, ScaleGranularity::head},
                                    {Shape{2, 2}, ScaleGranularity::batch_head},
                                    {Shape{2, 5, 2}, ScaleGranularity::token}}) {
    Case c = quantised();
    c.k_scale = TensorBuffer(DType::f32, shape);
    add_results(c, false);
    Problem p;
    ASSERT_TRUE(make_problem(c.forward_args(), Pass::forward, Use::run, p).ok());
    EXPECT_EQ(p.k_scale_kind, kind);
    EXPECT_EQ(p.v_scale_kind, ScaleGranularity::batch_head);
  }
  Case fp8 = batched(DType::e4m3, DType::e4m3);
  add_results(fp8, false);
  expect_accepted(fp8.forward_args());  // stored values are the values
}

TEST(Problem, RefusesBadResults) {
  Case c = batched();
  add_results(c, false);
  expect_refused(c.forward_args(),
                 {
                     {[](Attention& a) { a.o = {}; }, {"o: missing", "output"}},
                     {[](Attention& a) { a.o.dtype = DType::bf16; }, {"o: type bf16", "f32"}},
                     {[](Attention& a) { a.o.shape[3] = 8; }, {"o: shape [2, 3, 4, 8]", "[2, 3, 4, 6]"}},
                     {[](Attention& a) { a.o.rank = 3; }, {"o: shape [2, 3, 4]", "[2, 3, 4, 6]"}},
                     {[](Attention& a) { a.o.stride[3] = 2; }, {"o: stride 2"}},
                     {[](Attention& a) { a.o.stride[1] = 0; }, {"o: stride 0 over size 3", "do not overlap"}},
                     {[](Attention& a) { a.o.stride[0] = 6; }, {"o: stride", "do not overlap"}},
                     {[](Attention& a) { a.o.data = nullptr; }, {"o: data is null"}},
                     {[](Attention& a) { a.lse.dtype = DType::f64; }, {"lse: type f64", "f32"}},
                     {[](Attention& a) { a.lse.shape[2] = 4; }, {"lse: shape [2, 4, 4]", "[B, Hq, Sq] = [2, 4, 3]"}},
                     {[](Attention& a) { a.lse.stride[2] = 0; }, {"lse: stride 0", "do not overlap"}},
                     {[](Attention& a) { a.lse.data = nullptr; }, {"lse: data is null"}},
                     {[](Attention& a) { a.lse.data = a.o.data; }, {"lse: data at", "overlaps o at", "of their own"}},
                     {[](Attention& a) { a.lse.data = static_cast<float*>(a.o.data) + 7; }, {"lse", "overlaps o"}},
                 });
  Attention without = c.forward_args();
  without.lse = {};
  expect_accepted(without);
}

TEST(Problem, OutputTypesFollowTheQueries) {
  Case c = batched(DType::e4m3, DType::e4m3);
  add_results(c, false);
  EXPECT_EQ(c.o.view().dtype, DType::bf16);
  expect_refused(c.forward_args(), {{[](Attention& a) { a.o.dtype = DType::f16; }, {"o: type f16", "bf16"}}});
  Case wide = batched(DType::f64, DType::f64);
  wide.bias = TensorBuffer(DType::f64, {1, 1, 3, 5});
  add_results(wide, false);
  expect_refused(wide.forward_args(), {{[](Attention& a) { a.lse.dtype = DType::f32; }, {"lse: type f32", "f64"}}});
}

TEST(Problem, RefusesBadGradients) {
  Case c = batched();
  c.bias = TensorBuffer(DType::f32, {1, 4, 3, 5});
  c.sink = TensorBuffer(DType::f32, {4});
  add_results(c, true);
  expect_refused(c.backward_args(),
                 {
                     {[](Attention& a) { a.lse = {}; }, {"lse: missing", "forward pass"}},
                     {[](Attention& a) { a.o = {}; }, {"o: missing, expected the forward pass's output"}},
                     {[](Attention& a) { a.dk.data = a.dq.data; }, {"dk: data at", "overlaps dq at"}},
                     {[](Attention& a) { a.dsink.data = static_cast<float*>(a.dv.data) + 9; }, {"dsink", "dv"}},
                     {[](Attention& a) { a.dout = {}; }, {"dout: missing", "gradient of o"}},
                     {[](Attention& a) { a.dout.shape[3] = 8; }, {"dout: shape [2, 3, 4, 8]", "[2, 3, 4, 6]"}},
                     {[](Attention& a) { a.dout.dtype = DType::f16; }, {"dout: type f16", "f32"}},
                     {[](Attention& a) { a.dout.data = nullptr; }, {"dout: data is null"}},
                     {[](Attention& a) { a.dq.shape[1] = 4; }, {"dq: shape [2, 4, 4, 8]", "[2, 3, 4, 8]"}},
                     {[](Attention& a) { a.dk.dtype = DType::f64; }, {"dk: type f64", "f32"}},
                     {[](Attention& a) { a.dv.stride[1] = 0; }, {"dv: stride 0", "do not overlap"}},
                     {[](Attention& a) { a.dbias.shape[0] = 2; }, {"dbias: shape [2, 4, 3, 5]", "[1, 4, 3, 5]"}},
                     {[](Attention& a) { a.dsink.shape[0] = 1; }, {"dsink: shape [1]", "[4]"}},
                     {[](Attention& a) { a.dq.data = nullptr; }, {"dq: data is null"}},
                     {[](Attention& a) { a.bias = {}; }, {"dbias: given without bias"}},
                     {[](Attention& a) { a.sink = {}; }, {"dsink: given without sink"}},
                     {[](Attention& a) { a.dq = a.dk = a.dv = a.dbias = a.dsink = {}; },
                      {"dq, dk, dv, dbias, dsink: all missing"}},
                 },
                 Pass::backward);
  for (Tensor Attention::*only :
       {&Attention::dq, &Attention::dk, &Attention::dv, &Attention::dbias, &Attention::dsink}) {
    Attention a = c.backward_args();
    const Tensor kept = a.*only;
    a.dq = a.dk = a.dv = a.dbias = a.dsink = {};
    a.*only = kept;
    expect_accepted(a, Pass::backward);
  }
}

TEST(Problem, QuantisedKeysHaveNoBackward) {
  Case c = quantised();
  add_results(c, true);
  const Status status = make(c.backward_args(), Pass::backward);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_NE(status.message().find("k: type i8, the backward pass takes"), std::string::npos) << status.message();
}

/// Slices of one tensor [B, S, 3, H, D] lie between each other without sharing an element.
TEST(Problem, GradientsMayBeSlicesOfOneTensor) {
  Case c = dense_case(DType::f32, {2, 6, 6, 2, 2, 8, 8}, 1, true);
  std::vector<float> fused(2 * 6 * 3 * 2 * 8);
  Attention a = c.backward_args();
  int slice = 0;
  for (Tensor* t : {&a.dq, &a.dk, &a.dv}) {
    t->data = fused.data() + slice++ * 2 * 8;
    t->stride = {6 * 3 * 2 * 8, 3 * 2 * 8, 8, 1};
  }
  expect_accepted(a, Pass::backward);
}

TEST(Problem, StridesOfNothingAreNotLookedAt) {
  Case c;
  c.q = TensorBuffer(DType::f32, {2, 3, 4, 8});
  c.k = TensorBuffer(DType::f32, {2, 0, 2, 8});
  c.v = TensorBuffer(DType::f32, {2, 0, 2, 6});
  add_results(c, false);
  Attention a = c.forward_args();
  a.k.stride = a.v.stride = {};
  expect_accepted(a);
}

TEST(Problem, EmptyIsLegal) {
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{0, 3, 5}, {2, 0, 5}, {2, 3, 0}, {0, 0, 0}}) {
    Case c;
    c.q = TensorBuffer(DType::f32, {sizes[0], sizes[1], 4, 8});
    c.k = TensorBuffer(DType::f32, {sizes[0], sizes[2], 2, 8});
    c.v = TensorBuffer(DType::f32, {sizes[0], sizes[2], 2, 6});
    add_results(c, true);
    expect_accepted(c.forward_args());
    expect_accepted(c.backward_args(), Pass::backward);
    Attention a = c.forward_args();
    for (Tensor* t : {&a.q, &a.k, &a.v, &a.o, &a.lse})
      if (t->shape[0] * t->shape[1] * t->shape[2] == 0) t->data = nullptr;
    expect_accepted(a);
  }
}

/// Planning looks at shapes alone; lengths without data are the largest that fit.
TEST(Problem, PlansWithoutData) {
  for (Case c : {batched(), packed(), paged()}) {
    add_results(c, true);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      Attention a = pass == Pass::forward ? c.forward_args() : c.backward_args();
      for (Tensor* t : {&a.q, &a.k, &a.v, &a.cu_seqlens_q, &a.cu_seqlens_k, &a.seqused_k, &a.page_table, &a.o, &a.lse,
                        &a.dout, &a.dq, &a.dk, &a.dv})
        t->data = nullptr;
      expect_accepted(a, pass, Use::plan);
      EXPECT_EQ(make(a, pass).code(), StatusCode::invalid_argument);
      Problem p;
      ASSERT_TRUE(make_problem(a, pass, Use::plan, p).ok());
      EXPECT_EQ(p.sequence(1).seqlen_q, a.q.rank == 3 ? 6 : 3);
      EXPECT_EQ(p.sequence(1).seqlen_k, a.k.rank == 3 ? 10 : a.page_table.present() ? 6 : 5);
    }
  }
  Attention only_inputs = batched().inputs();
  expect_accepted(only_inputs, Pass::forward, Use::plan);
  expect_accepted(only_inputs, Pass::backward, Use::plan);
}

}  // namespace
}  // namespace onchip::test
