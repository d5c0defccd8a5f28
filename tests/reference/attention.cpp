#include "reference/attention.hpp"

#include <cmath>
#include <limits>

#include "reference/formats.hpp"

namespace onchip::test {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// Everything in float64, nothing rounded.
struct Exact {
  using Real = double;
  static constexpr bool kFromGivenStatistics = false;
  Real round(Real x) const { return x; }
};

/// f32, with P and dS rounded to the type of q.
struct Standard {
  using Real = float;
  static constexpr bool kFromGivenStatistics = true;
  DType type;
  Real round(Real x) const { return static_cast<Real>(round_to(type, x)); }
};

/// float64 from the lse that the caller has, which holds ln l to the last place of the largest logit only.
struct StandardFloat64 {
  using Real = double;
  static constexpr bool kFromGivenStatistics = true;
  Real round(Real x) const { return x; }
};

double value_of_scale(const Attention& args, const Tensor& scale, const Tensor& rows, const Span& span, std::int64_t j,
                      std::int64_t g) {
  if (!scale.present()) return 1.0;
  bool per_token = scale.rank == rows.rank - 1;
  for (int d = 0; per_token && d < scale.rank; ++d) per_token = scale.shape[d] == rows.shape[d];
  std::int64_t at;
  if (per_token) {
    const KeyIndex key = key_index(args, span, j);
    at = rows.rank == 3 ? offset(scale, key.first, g) : offset(scale, key.first, key.second, g);
  } else {
    at = scale.rank == 2 ? offset(scale, span.batch, g) : offset(scale, g);
  }
  return static_cast<const float*>(scale.data)[at];
}

template <typename Arithmetic>
class Reference {
 public:
  using Real = typename Arithmetic::Real;

  Reference(const Attention& args, bool gradients, Arithmetic arithmetic)
      : args_(args), gradients_(gradients), arithmetic_(arithmetic) {
    heads_ = args.q.shape[args.q.rank - 2];
    group_ = heads_ / args.k.shape[args.k.rank - 2];
    dim_ = args.q.shape[args.q.rank - 1];
    dim_v_ = args.v.shape[args.v.rank - 1];
    scale_ = static_cast<Real>(args.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(dim_))));
  }

  Results run(Results* magnitudes) {
    const std::int64_t rows = dim_ == 0 ? 0 : element_count(args_.q) / dim_;
    results_.o.assign(rows * dim_v_, 0.0);
    results_.lse.assign(rows, kMinusInfinity);
    magnitudes_ = magnitudes;
    if (gradients_) clear_gradients(results_);
    if (magnitudes && gradients_) clear_gradients(*magnitudes);
    for (std::int64_t b = 0; b < batch_size(args_); ++b)
      for (std::int64_t h = 0; h < heads_; ++h) one_head(span_of(args_, b), h);
    return std::move(results_);
  }

 private:
  using Matrix = std::vector<Real>;

  void clear_gradients(Results& results) const {
    results.dq.assign(element_count(args_.q), 0.0);
    results.dk.assign(element_count(args_.k), 0.0);
    results.dv.assign(element_count(args_.v), 0.0);
    results.dbias.assign(element_count(args_.bias), 0.0);
    results.dsink.assign(element_count(args_.sink), 0.0);
  }

  /// q·k of one sequence and head for all pairs, and what a row needs of it.
  void one_head(const Span& span, std::int64_t h) {
    load(span, h);
    Matrix gradient_k(gradients_ ? span.seqlen_k * dim_ : 0), gradient_v(gradients_ ? span.seqlen_k * dim_v_ : 0);
    for (std::int64_t i = 0; i < span.seqlen_q; ++i) {
      scores(span, h, i);
      const Statistics row = forward_row(span, h, i);
      if (gradients_) backward_row(span, h, i, row, gradient_k, gradient_v);
    }
    if (!gradients_) return;
    for (std::int64_t j = 0; j < span.seqlen_k; ++j) {
      const std::int64_t at = key_position(span, h, j);
      for (std::int64_t c = 0; c < dim_; ++c) add(results_.dk[at * dim_ + c], gradient_k[j * dim_ + c]);
      for (std::int64_t c = 0; c < dim_v_; ++c) add(results_.dv[at * dim_v_ + c], gradient_v[j * dim_v_ + c]);
    }
  }

  struct Statistics {
    Real max;  // 0 where the row has no key or an infinite logit
    Real sum;  // Σ exp(s − max), the sink included
    Real lse;
  };

  void load(const Span& span, std::int64_t h) {
    const std::int64_t sk = span.seqlen_k, g = h / group_;
    k_.resize(sk * dim_), k_columns_.resize(sk * dim_), v_.resize(sk * dim_v_), v_columns_.resize(sk * dim_v_);
    for (std::int64_t j = 0; j < sk; ++j) {
      const double k_scale = value_of_scale(args_, args_.k_scale, args_.k, span, j, g);
      const double v_scale = value_of_scale(args_, args_.v_scale, args_.v, span, j, g);
      for (std::int64_t c = 0; c < dim_; ++c)
        k_[j * dim_ + c] = k_columns_[c * sk + j] =
            static_cast<Real>(k_scale * decode(args_.k.dtype, args_.k.data, key_offset(args_, args_.k, span, j, g, c)));
      for (std::int64_t c = 0; c < dim_v_; ++c)
        v_[j * dim_v_ + c] = v_columns_[c * sk + j] =
            static_cast<Real>(v_scale * decode(args_.v.dtype, args_.v.data, key_offset(args_, args_.v, span, j, g, c)));
    }
    s_.resize(sk), p_.resize(sk), dp_.resize(sk), through_softcap_.assign(sk, Real{1});
  }

  Real element(const Tensor& t, std::int64_t at) const { return static_cast<Real>(decode(t.dtype, t.data, at)); }

  /// result[j] = Σ_c x[c]·columns[c][j]
  static void dot_all(const Matrix& x, const Matrix& columns, Matrix& result) {
    std::fill(result.begin(), result.end(), Real{0});
    const std::size_t n = result.size();
    for (std::size_t c = 0; c < x.size(); ++c) {
      const Real factor = x[c];
      const Real* column = columns.data() + c * n;
      for (std::size_t j = 0; j < n; ++j) result[j] += factor * column[j];
    }
  }

  /// Scores of row i, steps 1 to 4 of the definition; `visible_` lists the keys that are left.
  void scores(const Span& span, std::int64_t h, std::int64_t i) {
    q_.resize(dim_);
    for (std::int64_t c = 0; c < dim_; ++c) q_[c] = element(args_.q, query_offset(args_.q, span, i, h, c));
    dot_all(q_, k_columns_, s_);
    const std::int64_t shift = args_.alignment == Alignment::top_left ? 0 : span.seqlen_k - span.seqlen_q;
    visible_.clear();
    for (std::int64_t j = 0; j < span.seqlen_k; ++j) {
      if (!may_see(args_, span, h, i, j)) continue;
      visible_.push_back(j);
      Real s = scale_ * s_[j];
      if (args_.softcap > 0) {
        const Real cap = static_cast<Real>(args_.softcap);
        const Real t = std::tanh(s / cap);
        s = cap * t;
        through_softcap_[j] = 1 - t * t;
      }
      if (args_.bias.present()) s += element(args_.bias, offset(args_.bias, span.batch, h, i, j));
      if (args_.alibi_slopes.present()) {
        const Tensor& slopes = args_.alibi_slopes;
        const Real slope = element(slopes, slopes.rank == 2 ? offset(slopes, span.batch, h) : offset(slopes, h));
        s -= slope * static_cast<Real>(std::abs(i + shift - j));
      }
      s_[j] = s;
    }
  }

  Statistics forward_row(const Span& span, std::int64_t h, std::int64_t i) {
    const bool sink = args_.sink.present();
    const Real sink_logit = sink ? element(args_.sink, offset(args_.sink, h)) : Real{0};
    Real max = sink ? sink_logit : static_cast<Real>(kMinusInfinity);
    for (const std::int64_t j : visible_) max = s_[j] > max ? s_[j] : max;
    if (!std::isfinite(max)) max = 0;
    Real sum = sink ? std::exp(sink_logit - max) : Real{0};
    for (const std::int64_t j : visible_) sum += p_[j] = std::exp(s_[j] - max);
    const Statistics row{max, sum, sum == 0 ? static_cast<Real>(kMinusInfinity) : max + std::log(sum)};
    results_.lse[lse_position(span, h, i)] = row.lse;
    row_o_.assign(dim_v_, Real{0});
    if (sum != 0)
      for (const std::int64_t j : visible_) {
        const Real p = arithmetic_.round(p_[j] / sum);
        for (std::int64_t c = 0; c < dim_v_; ++c) row_o_[c] += p * v_[j * dim_v_ + c];
      }
    const std::int64_t at = row_position(span, h, i) * dim_v_;
    for (std::int64_t c = 0; c < dim_v_; ++c) results_.o[at + c] = row_o_[c];
    return row;
  }

  void backward_row(const Span& span, std::int64_t h, std::int64_t i, const Statistics& row, Matrix& gradient_k,
                    Matrix& gradient_v) {
    if (row.sum == 0) return;
    dout_.resize(dim_v_);
    Real delta = 0;
    for (std::int64_t c = 0; c < dim_v_; ++c) {
      dout_[c] = element(args_.dout, query_offset(args_.dout, span, i, h, c));
      delta += dout_[c] *
               (Arithmetic::kFromGivenStatistics ? element(args_.o, query_offset(args_.o, span, i, h, c)) : row_o_[c]);
    }
    const auto probability = [&](Real s) {
      if constexpr (Arithmetic::kFromGivenStatistics)
        return std::exp(s - element(args_.lse, lse_offset(span, h, i)));
      else
        return std::exp(s - row.max) / row.sum;
    };
    dot_all(dout_, v_columns_, dp_);
    row_dq_.assign(dim_, Real{0});
    for (const std::int64_t j : visible_) {
      const Real exact_p = probability(s_[j]);
      const Real ds = exact_p * (dp_[j] - delta);
      if (args_.bias.present()) results_.dbias[bias_position(span, h, i, j)] += ds;
      const Real p = arithmetic_.round(exact_p);
      const Real ds_raw = arithmetic_.round(ds * through_softcap_[j]);
      for (std::int64_t c = 0; c < dim_v_; ++c) gradient_v[j * dim_v_ + c] += p * dout_[c];
      for (std::int64_t c = 0; c < dim_; ++c) gradient_k[j * dim_ + c] += scale_ * ds_raw * q_[c];
      for (std::int64_t c = 0; c < dim_; ++c) row_dq_[c] += scale_ * ds_raw * k_[j * dim_ + c];
    }
    const std::int64_t at = row_position(span, h, i) * dim_;
    for (std::int64_t c = 0; c < dim_; ++c) results_.dq[at + c] = row_dq_[c];
    if (args_.sink.present()) results_.dsink[h] -= probability(element(args_.sink, offset(args_.sink, h))) * delta;
    if (magnitudes_) add_backward_magnitudes(span, h, i, row);
  }

  /// The sums of backward_row with every term's absolute value.
  void add_backward_magnitudes(const Span& span, std::int64_t h, std::int64_t i, const Statistics& row) {
    Results& m = *magnitudes_;
    Real delta = 0;
    for (std::int64_t c = 0; c < dim_v_; ++c) delta += std::abs(dout_[c] * row_o_[c]);
    const std::int64_t q_at = row_position(span, h, i) * dim_;
    for (const std::int64_t j : visible_) {
      const Real p = p_[j] / row.sum;
      Real dp = 0;
      for (std::int64_t c = 0; c < dim_v_; ++c) dp += std::abs(dout_[c] * v_[j * dim_v_ + c]);
      const Real ds = p * (dp + delta), raw = std::abs(scale_ * ds * through_softcap_[j]);
      if (args_.bias.present()) m.dbias[bias_position(span, h, i, j)] += ds;
      const std::int64_t at = key_position(span, h, j);
      for (std::int64_t c = 0; c < dim_v_; ++c) m.dv[at * dim_v_ + c] += p * std::abs(dout_[c]);
      for (std::int64_t c = 0; c < dim_; ++c) m.dk[at * dim_ + c] += raw * std::abs(q_[c]);
      for (std::int64_t c = 0; c < dim_; ++c) m.dq[q_at + c] += raw * std::abs(k_[j * dim_ + c]);
    }
    if (args_.sink.present()) m.dsink[h] += std::exp(element(args_.sink, offset(args_.sink, h)) - row.lse) * delta;
  }

  /// Row-major index of (row, head) in q without its last dimension.
  std::int64_t row_position(const Span& span, std::int64_t h, std::int64_t i) const {
    const std::int64_t row = args_.q.rank == 3 ? span.begin_q + i : span.batch * args_.q.shape[1] + i;
    return row * heads_ + h;
  }
  /// Row-major index of (key, KV head) in k without its last dimension.
  std::int64_t key_position(const Span& span, std::int64_t h, std::int64_t j) const {
    const KeyIndex key = key_index(args_, span, j);
    const std::int64_t row = args_.k.rank == 3 ? key.first : key.first * args_.k.shape[1] + key.second;
    return row * (heads_ / group_) + h / group_;
  }
  std::int64_t lse_offset(const Span& span, std::int64_t h, std::int64_t i) const {
    return args_.lse.rank == 2 ? offset(args_.lse, h, span.begin_q + i) : offset(args_.lse, span.batch, h, i);
  }
  std::int64_t lse_position(const Span& span, std::int64_t h, std::int64_t i) const {
    return args_.q.rank == 3 ? h * args_.q.shape[0] + span.begin_q + i
                             : (span.batch * heads_ + h) * args_.q.shape[1] + i;
  }
  std::int64_t bias_position(const Span& span, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const auto& shape = args_.bias.shape;
    const std::int64_t b = shape[0] == 1 ? 0 : span.batch, head = shape[1] == 1 ? 0 : h;
    return ((b * shape[1] + head) * shape[2] + i) * shape[3] + j;
  }
  static void add(double& sum, Real term) { sum = static_cast<Real>(static_cast<Real>(sum) + term); }

  const Attention& args_;
  bool gradients_;
  Arithmetic arithmetic_;
  std::int64_t heads_, group_, dim_, dim_v_;
  Real scale_;
  Results results_;
  Results* magnitudes_ = nullptr;
  Matrix k_, v_;                  // [sk][D], [sk][Dv]
  Matrix k_columns_, v_columns_;  // transposed
  Matrix q_, dout_;               // one row
  Matrix s_, p_, dp_;             // one row of scores
  Matrix through_softcap_;        // 1 − tanh²
  Matrix row_o_, row_dq_;
  std::vector<std::int64_t> visible_;
};

void round_all(std::vector<double>& values, DType type) {
  for (double& value : values) value = round_to(type, value);
}

}  // namespace

Results exact_attention(const Attention& args, bool gradients, Results* magnitudes) {
  return Reference<Exact>(args, gradients, Exact{}).run(magnitudes);
}

Results standard_attention(const Attention& args, bool gradients, bool rounding) {
  const DType type = args.q.dtype;
  Results results = type == DType::f64
                        ? Reference<StandardFloat64>(args, gradients, StandardFloat64{}).run(nullptr)
                        : Reference<Standard>(args, gradients, Standard{rounding ? type : DType::f32}).run(nullptr);
  round_all(results.o, type == DType::e4m3 ? DType::bf16 : type);
  round_all(results.lse, type == DType::f64 ? DType::f64 : DType::f32);
  for (std::vector<double>* gradient : {&results.dq, &results.dk, &results.dv}) round_all(*gradient, type);
  if (args.bias.present()) round_all(results.dbias, args.bias.dtype);
  round_all(results.dsink, DType::f32);
  return results;
}

}  // namespace onchip::test
