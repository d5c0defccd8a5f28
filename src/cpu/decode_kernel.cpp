// Few query rows, many keys: one chunk of keys for the rows of some KV heads. Each key and value is read from memory
// once; the arithmetic hides behind that.
//
//   S [rows][chunk] = Q·Kᵀ           dimensions on lanes, strips of keys
//   scores, maximum, exp2, sum       keys on lanes, a row at a time
//   O [rows][Dv] = P·V               dimensions on lanes, strips of keys
//
// Strips of K and V are used where they lie or converted to scratch (strips-inl.h). Scales of keys and values apply to
// S and P, not to elements.
//
// A value that is not finite spoils O of every row, as 0 · NaN does. So O tells when there is one: then the head's
// P·V is done again, key by key and only for the rows that see each key.
#include "cpu/decode_kernel.hpp"

#define HWY_WANT_AVX3_DL  // for byte_table-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode_kernel.cpp"
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// foreach_target comes first: it includes this file once for each target.
#include "cpu/simd/convert-inl.h"
#include "cpu/simd/dot-inl.h"
#include "cpu/simd/gemm-inl.h"
#include "cpu/simd/score_row-inl.h"
#include "cpu/simd/strips-inl.h"
#include "cpu/simd/weighted_sum-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {

template <typename T>
int64_t whole_vectors(int64_t n) {
  const int64_t vector = vector_lanes<T>();
  return (n + vector - 1) / vector * vector;
}

template <typename T>
struct DecodeScratch {
  int64_t q_stride, v_stride, s_stride;
  T* q;      // [rows][q_stride]
  T* s;      // [rows][s_stride]
  T* strip;  // [strip keys][q_stride or v_stride]
  T* bias;   // [s_stride]
  T* mask;   // [s_stride]
  T* scale;  // [s_stride]: of keys or values

  static std::size_t bytes(const Problem& problem, int64_t rows, int64_t chunk) {
    const int64_t qs = whole_vectors<T>(problem.head_dim), vs = whole_vectors<T>(problem.head_dim_v);
    const int64_t ss = score_stride(chunk);
    return aligned_bytes<T>(rows * qs) + aligned_bytes<T>(rows * ss) + aligned_bytes<T>(strip_elements(qs, vs)) +
           3 * aligned_bytes<T>(ss);
  }

  DecodeScratch(const Problem& problem, int64_t rows, int64_t chunk, WorkspaceCursor cursor)
      : q_stride(whole_vectors<T>(problem.head_dim)),
        v_stride(whole_vectors<T>(problem.head_dim_v)),
        s_stride(score_stride(chunk)),
        q(cursor.take<T>(rows * q_stride)),
        s(cursor.take<T>(rows * s_stride)),
        strip(cursor.take<T>(strip_elements(q_stride, v_stride))),
        bias(cursor.take<T>(s_stride)),
        mask(cursor.take<T>(s_stride)),
        scale(cursor.take<T>(s_stride)) {}

 private:
  /// Room for whole groups of keys and whole vectors, and an odd number of lines: rows would share cache sets
  /// otherwise.
  static int64_t score_stride(int64_t chunk) {
    const int64_t line = static_cast<int64_t>(kCacheLine / sizeof(T));
    return whole_vectors<T>((chunk + kDotKeys - 1) / kDotKeys * kDotKeys) / (2 * line) * (2 * line) + 3 * line;
  }
  static int64_t strip_elements(int64_t qs, int64_t vs) { return kMostStripKeys * (qs > vs ? qs : vs); }
};

/// One task at work. Rows of all heads are numbered through: row r of head h is h·rows + r.
template <typename T>
class DecodeChunk {
 public:
  DecodeChunk(const Problem& problem, const DecodeTask& task, int64_t chunk, std::byte* scratch,
              const DecodePartial<T>& partial)
      : problem_(problem),
        task_(task),
        keys_(task.keys),
        rows_(task.rows()),
        units_(score_units(problem)),
        partial_(partial),
        s_(problem, task.rows() * task.num_heads, chunk, WorkspaceCursor({scratch, 0})),
        k_(problem, task, problem.args.k, s_.q_stride),
        v_(problem, task, problem.args.v, s_.v_stride) {}

  void run() {
    k_.prefetch_first();
    for (int64_t h = 0; h < task_.num_heads; ++h) load_queries(h);
    k_.for_each(s_.strip, [this](int64_t h, int64_t j, int64_t n, const auto& k) ONCHIP_INLINE_LAMBDA {
      const T* q = s_.q + h * rows_ * s_.q_stride;
      dot_keys(rows_, n, s_.q_stride, q, s_.q_stride, k, scores(h, 0) + (j - keys_.begin), s_.s_stride);
    });
    v_.prefetch_first();
    for (int64_t h = 0; h < task_.num_heads; ++h) {
      scale_rows(h, problem_.args.k_scale, problem_.k_scale_kind);
      for (int64_t r = 0; r < rows_; ++r) softmax_row(h, r);
      scale_rows(h, problem_.args.v_scale, problem_.v_scale_kind);
      clear_output(h);
    }
    v_.for_each(s_.strip, [this](int64_t h, int64_t j, int64_t n, const auto& v) ONCHIP_INLINE_LAMBDA {
      T* o = partial_.head(h).o;
      add_values(scores(h, 0) + (j - keys_.begin), n, v, o);
    });
    for (int64_t h = 0; h < task_.num_heads; ++h)
      if (!output_is_finite(h)) add_values_apart(h);
  }

 private:
  T* scores(int64_t h, int64_t r) const { return s_.s + (h * rows_ + r) * s_.s_stride; }

  void load_queries(int64_t h) {
    const QueryRows rows(problem_, problem_.args.q);
    const QueryBlock block = task_.block(h);
    for (int64_t r = 0; r < rows_; ++r) {
      load_row(problem_.args.q.dtype, rows.at(block.sequence, block.query(r), block.head(r)), problem_.head_dim,
               static_cast<T>(units_.query_factor), s_.q + (h * rows_ + r) * s_.q_stride);
    }
  }

  /// Multiplies the head's rows by the scale of each key.
  void scale_rows(int64_t h, const Tensor& tensor, ScaleGranularity kind) {
    if (kind == ScaleGranularity::none) return;
    const KeyScales scales(problem_, tensor, kind);
    const int64_t head = task_.first.kv_head + h, keys = keys_.size();
    const bool one_for_all = kind != ScaleGranularity::token;
    const hn::ScalableTag<T> d;
    auto scale = hn::Set(d, static_cast<T>(scales.at(task_.first.sequence, keys_.begin, head)));
    if (!one_for_all) {
      for (int64_t i = 0; i < keys; ++i)
        s_.scale[i] = static_cast<T>(*scales.token(task_.first.sequence, keys_.begin + i, head));
    }
    for (int64_t r = 0; r < rows_; ++r) {
      T* row = scores(h, r);
      for (int64_t i = 0; i < keys; i += vector_lanes<T>()) {
        if (!one_for_all) scale = hn::Load(d, s_.scale + i);
        hn::Store(hn::Mul(hn::Load(d, row + i), scale), d, row + i);
      }
    }
  }

  /// What turns products of a row into scores, keys counted from the chunk's first.
  ScoreRow<T> score_row(int64_t i, int64_t head) {
    const Attention& args = problem_.args;
    const Sequence& sequence = task_.first.sequence;
    const int64_t keys = keys_.size();
    const KeyRange visible = sequence.mask.keys(i);
    ScoreRow<T> row{};
    row.scale = static_cast<T>(units_.log2_unit == kLog2E ? units_.product_factor : 1.0);
    row.softcap = static_cast<T>(problem_.softcap);
    row.position = static_cast<T>(i + sequence.mask.shift - keys_.begin);
    row.visible = {visible.begin - keys_.begin, visible.end < keys_.end ? visible.end - keys_.begin : keys};
    if (args.alibi_slopes.present()) row.slope = static_cast<T>(alibi_slope(problem_, sequence, head));
    if (args.bias.present()) {
      const std::byte* bias = ScoreRows(args.bias).at(sequence, head, i);
      load_row(args.bias.dtype, bias + keys_.begin * static_cast<int64_t>(size_of(args.bias.dtype)), keys, T(1),
               s_.bias);
      row.bias = s_.bias;
    }
    if (args.mask.present()) {
      load_row(DType::boolean, ScoreRows(args.mask).at(sequence, head, i) + keys_.begin, keys, T(1), s_.mask);
      row.mask = s_.mask;
    }
    return row;
  }

  /// Products become exp2(unit·(s − m)), 0 for hidden keys. See softmax-inl.h.
  void softmax_row(int64_t h, int64_t r) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = vector_lanes<T>(), keys = keys_.size();
    const QueryBlock block = task_.block(h);
    const ScoreRow<T> row = score_row(block.query(r), block.head(r));
    T* s = scores(h, r);
    auto max = hn::Neg(hn::Inf(d));
    auto slope = hn::Zero(d);
    auto hidden = hn::Eq(slope, slope);
    for (int64_t j = 0; j < keys; j += lanes) {
      const auto score = score_keys(d, row, hn::Load(d, s + j), j, slope, hidden);
      const auto x = hn::IfThenElse(hidden, hn::Neg(hn::Inf(d)), score);
      max = hn::Max(x, max);
      hn::Store(x, d, s + j);
    }
    max = hn::MaxOfLanes(d, max);
    const auto unit = hn::Set(d, static_cast<T>(units_.log2_unit));
    const auto shift = hn::IfThenElseZero(hn::Lt(hn::Abs(max), hn::Inf(d)), max);
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < keys; j += lanes) {
      const auto p = exp2(d, hn::Mul(unit, hn::Sub(hn::Load(d, s + j), shift)));
      sum = hn::Add(sum, p);
      hn::Store(p, d, s + j);
    }
    const DecodePartial<T> partial = partial_.head(h);
    partial.row_max[r] = hn::GetLane(max);
    partial.row_sum[r] = hn::GetLane(hn::SumOfLanes(d, sum));
  }

  void clear_output(int64_t h) {
    const hn::ScalableTag<T> d;
    T* o = partial_.head(h).o;
    for (int64_t i = 0; i < rows_ * partial_.o_stride; i += vector_lanes<T>()) hn::Store(hn::Zero(d), d, o + i);
  }

  /// o += p·v for all rows of one head.
  template <typename Element>
  HWY_INLINE void add_values(const T* p, int64_t keys, const RowRun<Element>& v, T* o) {
    if (is_few_rows(rows_)) {
      add_weighted(rows_, keys, s_.v_stride, p, s_.s_stride, v, o, partial_.o_stride);
    } else if constexpr (std::is_same_v<Element, T>) {
      for (int64_t j = 0; j < keys; ++j) v.prefetch(j, 0, s_.v_stride);
      gemm<T>(GemmStart::add, rows_, s_.v_stride, keys,
              {p, s_.s_stride, 1, v.first, v.stride, o, partial_.o_stride, nullptr});
    }
  }

  bool output_is_finite(int64_t h) const {
    const hn::ScalableTag<T> d;
    const T* o = partial_.head(h).o;
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < rows_ * partial_.o_stride; i += vector_lanes<T>())
      sum = hn::MulAdd(hn::Load(d, o + i), hn::Zero(d), sum);
    return hn::AllFalse(d, hn::IsNaN(sum));
  }

  /// O of one head a key at a time, each key only for the rows that see it.
  HWY_NOINLINE void add_values_apart(int64_t h) {
    const hn::ScalableTag<T> d;
    const ScoreRows mask(problem_.args.mask);
    const QueryBlock block = task_.block(h);
    clear_output(h);
    for (int64_t j = keys_.begin; j < keys_.end; ++j) {
      v_.load(j, h, s_.strip);
      for (int64_t r = 0; r < rows_; ++r) {
        const int64_t i = block.query(r);
        if (!block.sequence.mask.keys(i).contains(j)) continue;
        if (problem_.args.mask.present() && mask.at(block.sequence, block.head(r), i)[j] == std::byte{0}) continue;
        const auto p = hn::Set(d, scores(h, r)[j - keys_.begin]);
        T* o = partial_.head(h).o + r * partial_.o_stride;
        for (int64_t at = 0; at < partial_.o_stride; at += vector_lanes<T>())
          hn::Store(hn::MulAdd(p, hn::Load(d, s_.strip + at), hn::Load(d, o + at)), d, o + at);
      }
    }
  }

  const Problem& problem_;
  const DecodeTask& task_;
  const KeyRange keys_;
  const int64_t rows_;
  const ScoreUnits units_;
  const DecodePartial<T> partial_;
  DecodeScratch<T> s_;
  const Strips<T> k_, v_;
};

template <typename T>
int64_t output_stride(const Problem& problem) {
  return whole_vectors<T>(problem.head_dim_v);
}
int64_t output_stride_f32(const Problem& problem) { return output_stride<float>(problem); }
int64_t output_stride_f64(const Problem& problem) { return output_stride<double>(problem); }

std::size_t scratch_f32(const Problem& problem, int64_t rows, int64_t chunk) {
  return DecodeScratch<float>::bytes(problem, rows, chunk);
}
std::size_t scratch_f64(const Problem& problem, int64_t rows, int64_t chunk) {
  return DecodeScratch<double>::bytes(problem, rows, chunk);
}

void chunk_f32(const Problem& problem, const DecodeTask& task, int64_t chunk, std::byte* scratch,
               const DecodePartial<float>& partial) {
  DecodeChunk<float>(problem, task, chunk, scratch, partial).run();
}
void chunk_f64(const Problem& problem, const DecodeTask& task, int64_t chunk, std::byte* scratch,
               const DecodePartial<double>& partial) {
  DecodeChunk<double>(problem, task, chunk, scratch, partial).run();
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onchip::cpu {

HWY_EXPORT(output_stride_f32);
HWY_EXPORT(output_stride_f64);
HWY_EXPORT(scratch_f32);
HWY_EXPORT(scratch_f64);
HWY_EXPORT(chunk_f32);
HWY_EXPORT(chunk_f64);

template <>
std::int64_t decode_output_stride<float>(const Problem& problem) {
  return HWY_DYNAMIC_DISPATCH(output_stride_f32)(problem);
}
template <>
std::int64_t decode_output_stride<double>(const Problem& problem) {
  return HWY_DYNAMIC_DISPATCH(output_stride_f64)(problem);
}

template <>
std::size_t decode_scratch_bytes<float>(const Problem& problem, std::int64_t rows, std::int64_t chunk) {
  return HWY_DYNAMIC_DISPATCH(scratch_f32)(problem, rows, chunk);
}
template <>
std::size_t decode_scratch_bytes<double>(const Problem& problem, std::int64_t rows, std::int64_t chunk) {
  return HWY_DYNAMIC_DISPATCH(scratch_f64)(problem, rows, chunk);
}

template <>
void decode_chunk<float>(const Problem& problem, const DecodeTask& task, std::int64_t chunk, std::byte* scratch,
                         const DecodePartial<float>& partial) {
  HWY_DYNAMIC_DISPATCH(chunk_f32)(problem, task, chunk, scratch, partial);
}
template <>
void decode_chunk<double>(const Problem& problem, const DecodeTask& task, std::int64_t chunk, std::byte* scratch,
                          const DecodePartial<double>& partial) {
  HWY_DYNAMIC_DISPATCH(chunk_f64)(problem, task, chunk, scratch, partial);
}

}  // namespace onchip::cpu
#endif  // HWY_ONCE
