#include "random/generator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention.hpp"
#include "reference/formats.hpp"
#include "support/rng.hpp"
#include "support/visibility.hpp"

namespace onchip::test {
namespace {

constexpr std::int64_t kHeadDims[] = {1, 3, 8, 16, 17, 32, 40, 64, 72, 80, 96, 128, 130, 256};
constexpr std::int64_t kLengths[] = {0,  1,  2,  3,  5,  7,  8,  13, 16, 17,  23,  31,  32,  33,
                                     47, 48, 61, 63, 64, 65, 79, 96, 97, 101, 127, 128, 129, 151};
constexpr std::int64_t kLongLengths[] = {191, 192, 193, 211, 256, 257, 293, 307};
constexpr std::int64_t kVeryLongLengths[] = {1000, 1024, 1031, 1537};
constexpr std::int64_t kHeadRatios[] = {1, 1, 1, 2, 3, 4, 7, 8};
constexpr std::int64_t kPageSizes[] = {1, 2, 3, 8, 16, 17, 32, 64};
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

enum class Layout { batched, packed, paged };

/// What is fixed before any memory is laid out.
struct Sizes {
  DType type, kv_type;
  Layout layout_q, layout_k;
  std::int64_t batch, kv_heads, heads, dim, dim_v;
  std::vector<std::int64_t> lengths_q, lengths_k;  // all equal where batched

  double work() const {
    double pairs = 0;
    for (std::size_t b = 0; b < lengths_q.size(); ++b) pairs += static_cast<double>(lengths_q[b] * lengths_k[b]);
    return pairs * static_cast<double>(heads * (dim + dim_v));
  }
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : rng_(seed) {}

  Case draw() {
    draw_options();
    draw_types();
    draw_sizes();
    lay_out_queries();
    lay_out_keys();
    draw_lengths_used();
    draw_score_terms();
    fill_queries();
    fill_keys();
    fill_bias();
    lay_out_results();
    return std::move(case_);
  }

 private:
  using Shape = std::vector<std::int64_t>;

  TensorBuffer input(DType type, const Shape& shape, bool free_last = false) {
    return TensorBuffer(type, shape, draw_strides(rng_, shape, true, free_last));
  }
  TensorBuffer output(const Tensor& like, bool free_last = false) {
    const Shape shape(like.shape.begin(), like.shape.begin() + like.rank);
    return TensorBuffer(like.dtype, shape, draw_strides(rng_, shape, false, free_last));
  }

  void draw_options() {
    Attention& o = case_.options;
    o.num_threads = static_cast<int>(rng_.pick({1, 2, 7}));
    o.causal = rng_.chance(0.4);
    if (rng_.chance(0.3)) {
      const auto bound = [&] { return rng_.pick<std::int64_t>({-1, 0, 1, 3, 17, 63, 64, 100, 1000}); };
      o.window_left = bound();
      o.window_right = bound();
    }
    if (rng_.chance(0.2)) o.alignment = Alignment::top_left;
    if (rng_.chance(0.2)) o.softcap = rng_.pick({0.5, 3.0, 15.0, 50.0});
    if (rng_.chance(0.2)) o.softmax_scale = rng_.pick({0.0, -0.2, 0.07, 0.31, 1.0});
  }

  void draw_types() {
    sizes_.type = rng_.pick({DType::f32, DType::f32, DType::f32, DType::f32, DType::bf16, DType::bf16, DType::bf16,
                             DType::f16, DType::f16, DType::f64, DType::e4m3});
    sizes_.kv_type = sizes_.type;
    if (rng_.chance(sizes_.type == DType::e4m3 ? 0.4 : 0.25))
      sizes_.kv_type = rng_.pick({DType::i8, DType::e4m3, DType::e5m2});
  }

  bool quantised() const {
    return sizes_.kv_type == DType::i8 || sizes_.kv_type == DType::e4m3 || sizes_.kv_type == DType::e5m2;
  }

  std::int64_t draw_length() {
    const double kind = rng_.uniform();
    if (kind < 0.01) return rng_.pick<std::int64_t>(kVeryLongLengths);
    if (kind < 0.1) return rng_.pick<std::int64_t>(kLongLengths);
    return rng_.pick<std::int64_t>(kLengths);
  }

  void draw_sizes() {
    Sizes& s = sizes_;
    s.layout_q = rng_.chance(0.35) ? Layout::packed : Layout::batched;
    s.layout_k = rng_.pick({Layout::batched, Layout::batched, Layout::packed, Layout::paged});
    if (s.layout_q == Layout::packed && rng_.chance(0.6)) s.layout_k = Layout::packed;
    s.batch = rng_.chance(0.01) ? 0 : rng_.integer(1, 4);
    s.kv_heads = rng_.integer(1, 3);
    s.heads = s.kv_heads * rng_.pick<std::int64_t>(kHeadRatios);
    s.dim = rng_.pick<std::int64_t>(kHeadDims);
    s.dim_v = rng_.chance(0.7) ? s.dim : rng_.pick<std::int64_t>(kHeadDims);
    const bool decode = rng_.chance(0.15);
    const bool square = !decode && rng_.chance(0.3);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      s.lengths_q.push_back(decode ? rng_.integer(1, 8) : draw_length());
      s.lengths_k.push_back(square ? s.lengths_q.back() : draw_length());
    }
    if (s.layout_q == Layout::batched) std::fill(s.lengths_q.begin(), s.lengths_q.end(), s.batch ? s.lengths_q[0] : 5);
    if (s.layout_k == Layout::batched) std::fill(s.lengths_k.begin(), s.lengths_k.end(), s.batch ? s.lengths_k[0] : 5);
    const double kind = rng_.uniform();
    shrink_to(kind < 0.6 ? 8e5 : kind < 0.9 ? 3e6 : kind < 0.99 ? 1e7 : 5e7);
  }

  /// Fewer heads, then shorter sequences, until the case costs no more than `limit` multiplications.
  void shrink_to(double limit) {
    Sizes& s = sizes_;
    while (s.work() > limit) {
      if (s.kv_heads > 1) {
        s.heads /= s.kv_heads;
        s.kv_heads = 1;
      } else if (s.batch > 2) {
        s.batch = 2;
        s.lengths_q.resize(2);
        s.lengths_k.resize(2);
      } else if (s.heads > 2 && rng_.chance(0.5)) {
        s.heads = s.heads > 4 ? 3 : 1;
      } else {
        std::vector<std::int64_t>& lengths = rng_.chance(0.5) ? s.lengths_q : s.lengths_k;
        for (std::int64_t& length : lengths) length = length * 2 / 3;
      }
    }
  }

  std::int64_t longest(const std::vector<std::int64_t>& lengths, std::int64_t if_none) const {
    return lengths.empty() ? if_none : *std::max_element(lengths.begin(), lengths.end());
  }

  TensorBuffer cumulative(const std::vector<std::int64_t>& lengths) {
    std::vector<double> sums{0};
    for (const std::int64_t length : lengths) sums.push_back(sums.back() + static_cast<double>(length));
    TensorBuffer buffer(DType::i32, {static_cast<std::int64_t>(sums.size())});
    buffer.assign(sums);
    return buffer;
  }

  static std::int64_t total(const std::vector<std::int64_t>& lengths) {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) sum += length;
    return sum;
  }

  void lay_out_queries() {
    const Sizes& s = sizes_;
    if (s.layout_q == Layout::packed) {
      case_.cu_seqlens_q = cumulative(s.lengths_q);
      case_.q = input(s.type, {total(s.lengths_q), s.heads, s.dim});
    } else {
      case_.q = input(s.type, {s.batch, longest(s.lengths_q, 5), s.heads, s.dim});
    }
  }

  void lay_out_keys() {
    const Sizes& s = sizes_;
    Shape outer;
    if (s.layout_k == Layout::packed) {
      case_.cu_seqlens_k = cumulative(s.lengths_k);
      outer = {total(s.lengths_k)};
    } else if (s.layout_k == Layout::paged) {
      outer = lay_out_pages();
    } else {
      outer = {s.batch, longest(s.lengths_k, 5)};
    }
    const auto with = [&](std::initializer_list<std::int64_t> inner) {
      Shape shape = outer;
      shape.insert(shape.end(), inner);
      return shape;
    };
    case_.k = input(s.kv_type, with({s.kv_heads, s.dim}));
    case_.v = input(s.kv_type, with({s.kv_heads, s.dim_v}));
    if (!quantised() || (s.kv_type == s.type && rng_.chance(0.4))) return;
    for (TensorBuffer* scale : {&case_.k_scale, &case_.v_scale}) switch (rng_.integer(0, 3)) {
        case 0:
          *scale = TensorBuffer(DType::f32, {1});
          break;
        case 1:
          *scale = TensorBuffer(DType::f32, {s.kv_heads});
          break;
        case 2:
          *scale = input(DType::f32, {s.batch, s.kv_heads});
          break;
        default:
          *scale = input(DType::f32, with({s.kv_heads}), true);
      }
  }

  /// A pool of pages in no order, some shared between sequences; returns [pages, page_size].
  Shape lay_out_pages() {
    const Sizes& s = sizes_;
    const std::int64_t page_size = rng_.pick<std::int64_t>(kPageSizes);
    const std::int64_t spare_columns = rng_.integer(0, 2);
    const std::int64_t columns = (longest(s.lengths_k, 5) + page_size - 1) / page_size + spare_columns;
    std::vector<double> table;
    for (std::int64_t i = 0; i < s.batch * columns; ++i) table.push_back(static_cast<double>(i));
    for (std::size_t i = table.size(); i > 1; --i)
      std::swap(table[i - 1], table[static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(i) - 1))]);
    if (rng_.chance(0.4) && table.size() > 1)
      for (double& page : table)
        if (rng_.chance(0.3)) page = table[static_cast<std::size_t>(rng_.integer(0, std::ssize(table) - 1))];
    case_.page_table = input(DType::i32, {s.batch, columns});
    case_.page_table.assign(table);
    return {s.batch * columns + rng_.integer(0, 3), page_size};
  }

  /// seqused_k, and garbage in the page table beyond it.
  void draw_lengths_used() {
    const Sizes& s = sizes_;
    const bool paged = s.layout_k == Layout::paged;
    if (!rng_.chance(paged ? 0.85 : 0.3)) return;
    std::vector<double> used;
    for (const std::int64_t length : s.lengths_k)
      used.push_back(static_cast<double>(paged || rng_.chance(0.3) ? length : rng_.integer(0, length)));
    case_.seqused_k = TensorBuffer(DType::i32, {s.batch});
    case_.seqused_k.assign(used);
    const Tensor table = case_.page_table.view();
    if (!paged || table.stride[0] == 0 || table.stride[1] == 0) return;
    const std::int64_t page_size = case_.k.view().shape[1];
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t i = (s.lengths_k[static_cast<std::size_t>(b)] + page_size - 1) / page_size; i < table.shape[1];
           ++i)
        static_cast<std::int32_t*>(table.data)[offset(table, b, i)] = rng_.pick(
            {-1, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min(), 1 << 24});
  }

  /// [1 or B, 1 or Hq, Sq, Sk], larger where sequences differ in length.
  Shape score_shape() {
    const Sizes& s = sizes_;
    Shape shape{rng_.chance(0.5) ? 1 : s.batch, rng_.chance(0.5) ? 1 : s.heads, longest(s.lengths_q, 5),
                longest(s.lengths_k, 5)};
    if (s.layout_q != Layout::batched) shape[2] += rng_.integer(0, 3);
    if (s.layout_k != Layout::batched) shape[3] += rng_.integer(0, 3);
    if (s.layout_k == Layout::paged && !case_.seqused_k.present())
      shape[3] = case_.page_table.view().shape[1] * case_.k.view().shape[1];
    return shape;
  }

  void draw_score_terms() {
    const Sizes& s = sizes_;
    if (rng_.chance(0.25)) {
      case_.mask = input(DType::boolean, score_shape());
      fill_mask();
    }
    if (rng_.chance(0.2)) {
      case_.alibi_slopes = input(DType::f32, rng_.chance(0.5) ? Shape{s.heads} : Shape{s.batch, s.heads});
      case_.alibi_slopes.fill([&] { return std::exp2(-8.0 * rng_.uniform()); });
    }
    if (rng_.chance(0.25)) {
      case_.sink = input(DType::f32, {s.heads});
      const double amplitude = rng_.pick({1.0, 1.0, 10.0});
      case_.sink.fill([&] { return rng_.chance(0.05) ? kMinusInfinity : amplitude * rng_.normal(); });
    }
    if (rng_.chance(0.3)) {
      DType type = rng_.pick({DType::f32, DType::f32, DType::bf16, DType::f16});
      if (s.type == DType::f64 && rng_.chance(0.5)) type = DType::f64;
      case_.bias = input(type, score_shape());
    }
  }

  void fill_mask() {
    const double keep = rng_.pick({0.02, 0.3, 0.6, 0.95});
    const std::int64_t dead = rng_.chance(0.4) ? rng_.integer(1, 5) : 0;  // every dead-th row has no key
    const Tensor t = case_.mask.view();
    const Attention args = case_.inputs();
    for (std::int64_t b = 0; b < batch_size(args); ++b) {
      const Span span = span_of(args, b);
      for (std::int64_t h = 0; h < t.shape[1]; ++h)
        for (std::int64_t i = 0; i < span.seqlen_q; ++i)
          for (std::int64_t j = 0; j < span.seqlen_k; ++j)
            encode(DType::boolean, t.data, offset(t, b, h, i, j), rng_.chance(keep) && !(dead && i % dead == 0));
    }
  }

  void fill_queries() {
    const bool large = rng_.chance(0.1);
    const double amplitude = large ? rng_.pick({8.0, 60.0, 400.0}) : 1.0;
    case_.q.fill([&] { return amplitude * rng_.normal(); });
  }

  double stored_key() {
    switch (sizes_.kv_type) {
      case DType::i8:
        return static_cast<double>(rng_.integer(-127, 127));
      default:
        return rng_.normal();
    }
  }

  /// Keys that no query sees stay NaN, and so do their scales.
  void fill_keys() {
    const Attention args = case_.inputs();
    const auto poison_bytes = [&](TensorBuffer& buffer) {
      if (sizes_.kv_type == DType::i8) buffer.fill([] { return -128.0; });
    };
    poison_bytes(case_.k);
    poison_bytes(case_.v);
    for (const TensorBuffer* scale : {&case_.k_scale, &case_.v_scale}) fill_scale(scale->view(), args);
    for_each_visible_key(args, [&](const Span& span, std::int64_t j, std::int64_t g) {
      for (const Tensor& t : {args.k, args.v})
        for (std::int64_t c = 0; c < t.shape[t.rank - 1]; ++c)
          encode(t.dtype, t.data, key_offset(args, t, span, j, g, c), stored_key());
    });
  }

  void fill_scale(const Tensor& scale, const Attention& args) {
    if (!scale.present()) return;
    const double unit = sizes_.kv_type == DType::i8 ? 1.0 / 64 : 1.0;
    const auto value = [&] { return unit * (0.5 + rng_.uniform()); };
    const Tensor& rows = args.k;
    const bool per_token = scale.rank == rows.rank - 1 &&
                           std::equal(scale.shape.begin(), scale.shape.begin() + scale.rank, rows.shape.begin());
    auto* data = static_cast<float*>(scale.data);
    if (!per_token) {
      for_each_element(scale, [&](std::int64_t at, std::int64_t) { data[at] = static_cast<float>(value()); });
      return;
    }
    for_each_visible_key(args, [&](const Span& span, std::int64_t j, std::int64_t g) {
      const KeyIndex key = key_index(args, span, j);
      const std::int64_t at = rows.rank == 3 ? offset(scale, key.first, g) : offset(scale, key.first, key.second, g);
      data[at] = static_cast<float>(value());
    });
  }

  /// The bias of pairs that the window or the mask hides stays NaN.
  void fill_bias() {
    const Tensor t = case_.bias.view();
    if (!t.present()) return;
    const double infinite = rng_.pick({0.0, 0.0, 0.3, 0.9});
    const double amplitude = rng_.pick({1.0, 1.0, 20.0});
    for_each_visible_pair(case_.inputs(), [&](const Span& span, std::int64_t h, std::int64_t i, std::int64_t j) {
      encode(t.dtype, t.data, offset(t, span.batch, h, i, j),
             rng_.chance(infinite) ? kMinusInfinity : amplitude * rng_.normal());
    });
  }

  void lay_out_results() {
    const bool gradients = !quantised() && sizes_.type != DType::e4m3 && rng_.chance(0.7);
    add_results(case_, gradients);
    case_.o = output(case_.o.view());
    case_.lse = rng_.chance(0.85) ? output(case_.lse.view(), true) : TensorBuffer();
    if (!gradients) return;
    const auto as_input = [&](TensorBuffer& buffer, bool free_last) {
      const Tensor t = buffer.view();
      const Shape shape(t.shape.begin(), t.shape.begin() + t.rank);
      buffer = TensorBuffer(t.dtype, shape, draw_strides(rng_, shape, false, free_last));
    };
    as_input(case_.o_in, false);
    as_input(case_.lse_in, true);
    const Tensor dout = case_.dout.view();
    case_.dout = input(dout.dtype, {dout.shape.begin(), dout.shape.begin() + dout.rank});
    case_.dout.fill([&] { return rng_.normal(); });
    set_statistics(case_);
    draw_gradient_subset();
  }

  void draw_gradient_subset() {
    std::vector<TensorBuffer*> all = case_.results_of(Pass::backward);
    const bool everything = rng_.chance(0.5);
    const TensorBuffer* kept = rng_.pick<TensorBuffer*>(all);
    for (TensorBuffer* gradient : all)
      *gradient = everything || gradient == kept || rng_.chance(0.5) ? output(gradient->view()) : TensorBuffer();
  }

  Rng rng_;
  Sizes sizes_{};
  Case case_;
};

}  // namespace

Case draw_case(std::uint64_t seed) {
  Case c = Generator(seed).draw();
  c.options.batch_invariant = seed % 4 == 1;  // by no draw: what a seed gives stays what it was
  return c;
}

}  // namespace onchip::test
