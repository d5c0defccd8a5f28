#include "core/decode_rig.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace onchip::test {
namespace {

DType output_type(DType type) { return type == DType::e4m3 ? DType::bf16 : type; }

DType lse_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

double largest_value(DType type) { return type == DType::i8 ? 127 : type == DType::e4m3 ? 448 : 57344; }

bool quantised(DType type) { return type == DType::i8 || type == DType::e4m3 || type == DType::e5m2; }

/// Half a unit in the last place of x, stored in `type`.
double half_unit(DType type, double x) {
  const auto of = [&](int mantissa_bits, int min_exponent) {
    return std::ldexp(0.5, std::max(x == 0 ? min_exponent : std::ilogb(x), min_exponent) - mantissa_bits);
  };
  switch (type) {
    case DType::f64:
      return of(52, -1022);
    case DType::bf16:
      return of(7, -126);
    case DType::f16:
      return of(10, -14);
    case DType::e4m3:
      return of(3, -6);
    case DType::e5m2:
      return of(2, -14);
    case DType::i8:
      return 0.5;
    default:
      return of(23, -126);
  }
}

double rounded(DType type, double x) {
  alignas(8) std::byte element[8];
  store_element(type, element, 0, x);
  return load_element(type, element, 0);
}

/// Of attention on inputs of this type, P rounded to it.
double output_tolerance(DType type) {
  switch (type) {
    case DType::f64:
      return 1e-12;
    case DType::bf16:
      return 3e-2;
    case DType::f16:
      return 4e-3;
    case DType::e4m3:
      return 2e-1;
    default:
      return 2e-5;
  }
}

}  // namespace

std::string text(const DecodeOptions& o) {
  return std::string(name(o.type)) + " cache " + name(o.cache_type) + " scale " +
         std::to_string(static_cast<int>(o.scale)) + " layout " + std::to_string(static_cast<int>(o.layout)) +
         (o.packed_q ? " packed q" : "") + " rotary " + std::to_string(o.rotary) +
         (o.interleaved ? " interleaved" : "") + (o.causal ? " causal" : "");
}

DecodeRig::DecodeRig(const DecodeOptions& options, std::vector<std::int32_t> lengths, unsigned seed)
    : options_(options),
      random_(seed),
      seqused_(DType::i32, {kBatch}),
      page_table_(DType::i32, {kBatch, kCapacity / kPageSize}),
      cu_seqlens_k_(DType::i32, {kBatch + 1}),
      cu_seqlens_q_(DType::i32, {kBatch + 1}),
      cos_(options.angle_type, {kCapacity, std::max<std::int64_t>(1, options.rotary / 2)}),
      sin_(cos_),
      k_(make_cache(options.head_dim)),
      v_(make_cache(options.head_dim_v)),
      k_scale_(make_scale()),
      v_scale_(make_scale()),
      q_(DType::f32, {1}),
      k_new_(q_),
      v_new_(q_),
      o_(q_),
      lse_(q_) {
  fill_pages();
  fill_angles();
  std::uniform_real_distribution<double> scale(0.01, 0.05);
  const double factor = options.cache_type == DType::i8 ? 1 : 0.2;
  for (OwnedTensor* scales : {&k_scale_, &v_scale_})
    if (options.scale != CacheScale::none && options.scale != CacheScale::token)
      for (std::int64_t i = 0; i < scales->count; ++i) scales->set(i, factor * scale(random_));
  std::normal_distribution<double> normal;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    seqused_.int32()[b] = lengths[b];
    for (std::int64_t j = 0; j < lengths[b]; ++j)
      for (std::int64_t head = 0; head < kHeadsKv; ++head)
        for (const auto& [cache, scales] : {std::pair{&k_, &k_scale_}, std::pair{&v_, &v_scale_}}) {
          const std::int64_t size = cache == &k_ ? options.head_dim : options.head_dim_v;
          for (std::int64_t d = 0; d < size; ++d)
            cache->set(cache_index(b, j, head) * size + d, normal(random_) * (quantised(options.cache_type) ? 30 : 1));
          if (options.scale == CacheScale::token) scales->set(scale_index(b, j, head), factor * scale(random_));
        }
  }
}

std::vector<OwnedTensor*> DecodeRig::tensors() {
  return {&seqused_, &page_table_, &cu_seqlens_k_, &cu_seqlens_q_, &cos_, &sin_, &k_, &v_, &k_scale_,
          &v_scale_, &q_,          &k_new_,        &v_new_,        &o_,   &lse_};
}

void DecodeRig::fill_pages() {
  std::vector<std::int32_t> pages(page_table_.count);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random_);
  std::copy(pages.begin(), pages.end(), page_table_.int32());
  for (std::int64_t b = 0; b <= kBatch; ++b) cu_seqlens_k_.int32()[b] = static_cast<std::int32_t>(b * kCapacity);
}

void DecodeRig::fill_angles() {
  const std::int64_t half = options_.rotary / 2;
  for (std::int64_t p = 0; p < kCapacity; ++p)
    for (std::int64_t c = 0; c < half; ++c) {
      const double angle =
          static_cast<double>(p) * std::pow(100.0, -static_cast<double>(c) / static_cast<double>(half));
      cos_.set(p * half + c, std::cos(angle));
      sin_.set(p * half + c, std::sin(angle));
    }
}

OwnedTensor DecodeRig::make_cache(std::int64_t size) const {
  return OwnedTensor(options_.cache_type, {kBatch * kCapacity, kHeadsKv, size});
}

Tensor DecodeRig::cache_view(const OwnedTensor& cache) const {
  const std::int64_t size = cache.view.shape[2];
  void* data = cache.view.data;
  const DType type = cache.view.dtype;
  switch (options_.layout) {
    case CacheLayout::packed:
      return cache.view;
    case CacheLayout::paged:
      return contiguous(data, type, {kBatch * kCapacity / kPageSize, kPageSize, kHeadsKv, size});
    case CacheLayout::batched:
      return contiguous(data, type, {kBatch, kCapacity, kHeadsKv, size});
    case CacheLayout::transposed:
      break;
  }
  Tensor view = contiguous(data, type, {kBatch, kHeadsKv, kCapacity, size});
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.stride[1], view.stride[2]);
  return view;
}

OwnedTensor DecodeRig::make_scale() const {
  switch (options_.scale) {
    case CacheScale::none:
    case CacheScale::tensor:
      return OwnedTensor(DType::f32, {1});
    case CacheScale::head:
      return OwnedTensor(DType::f32, {kHeadsKv});
    case CacheScale::batch_head:
      return OwnedTensor(DType::f32, {kBatch, kHeadsKv});
    case CacheScale::token:
      break;
  }
  if (options_.layout == CacheLayout::packed) return OwnedTensor(DType::f32, {kBatch * kCapacity, kHeadsKv});
  if (options_.layout == CacheLayout::paged)
    return OwnedTensor(DType::f32, {kBatch * kCapacity / kPageSize, kPageSize, kHeadsKv});
  return OwnedTensor(DType::f32, {kBatch, kCapacity, kHeadsKv});
}

std::int64_t DecodeRig::row_of_key(std::int64_t b, std::int64_t j) const {
  if (options_.layout != CacheLayout::paged) return b * kCapacity + j;
  const auto page = static_cast<std::int64_t>(page_table_.get_int32(b * kCapacity / kPageSize + j / kPageSize));
  return page * kPageSize + j % kPageSize;
}

std::int64_t DecodeRig::cache_index(std::int64_t b, std::int64_t j, std::int64_t head) const {
  if (options_.layout == CacheLayout::transposed) return (b * kHeadsKv + head) * kCapacity + j;
  return row_of_key(b, j) * kHeadsKv + head;
}

std::int64_t DecodeRig::scale_index(std::int64_t b, std::int64_t j, std::int64_t head) const {
  switch (options_.scale) {
    case CacheScale::none:
    case CacheScale::tensor:
      return 0;
    case CacheScale::head:
      return head;
    case CacheScale::batch_head:
      return b * kHeadsKv + head;
    case CacheScale::token:
      break;
  }
  return row_of_key(b, j) * kHeadsKv + head;
}

OwnedTensor DecodeRig::step_tensor(std::int64_t heads, std::int64_t size, DType type) const {
  if (!options_.packed_q) return OwnedTensor(type, {kBatch, new_tokens_[0], heads, size});
  return OwnedTensor(type, {std::accumulate(new_tokens_.begin(), new_tokens_.end(), std::int64_t{0}), heads, size});
}

std::int64_t DecodeRig::token_index(std::int64_t b, std::int64_t i) const {
  return std::accumulate(new_tokens_.begin(), new_tokens_.begin() + b, i);
}

void DecodeRig::draw(const std::vector<std::int64_t>& new_tokens) {
  new_tokens_ = new_tokens;
  for (std::int64_t b = 0; b <= kBatch; ++b) cu_seqlens_q_.int32()[b] = static_cast<std::int32_t>(token_index(b, 0));
  q_ = step_tensor(kHeadsQ, options_.head_dim, options_.type);
  k_new_ = step_tensor(kHeadsKv, options_.head_dim, options_.type);
  v_new_ = step_tensor(kHeadsKv, options_.head_dim_v, options_.type);
  o_ = step_tensor(kHeadsQ, options_.head_dim_v, output_type(options_.type));
  const std::int64_t total = token_index(kBatch, 0);
  lse_ = options_.packed_q ? OwnedTensor(lse_type(options_.type), {kHeadsQ, total})
                           : OwnedTensor(lse_type(options_.type), {kBatch, kHeadsQ, new_tokens_[0]});
  std::normal_distribution<double> normal;
  for (OwnedTensor* tensor : {&q_, &k_new_, &v_new_})
    for (std::int64_t i = 0; i < tensor->count; ++i) tensor->set(i, normal(random_));
}

void DecodeRig::take(const DecodeRig& other, std::int64_t begin, std::int64_t end) {
  draw(std::vector<std::int64_t>(kBatch, end - begin));
  for (const auto& [to, from] : {std::pair{&q_, &other.q_}, {&k_new_, &other.k_new_}, {&v_new_, &other.v_new_}}) {
    const std::int64_t token = to->count / token_index(kBatch, 0);
    for (std::int64_t b = 0; b < kBatch; ++b)
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t e = 0; e < token; ++e)
          to->set(token_index(b, i - begin) * token + e, from->get(other.token_index(b, i) * token + e));
  }
}

Decode DecodeRig::problem() const {
  Decode d;
  d.attention.q = q_.view;
  d.attention.k = cache_view(k_);
  d.attention.v = cache_view(v_);
  d.attention.seqused_k = seqused_.view;
  if (options_.layout == CacheLayout::packed) d.attention.cu_seqlens_k = cu_seqlens_k_.view;
  if (options_.layout == CacheLayout::paged) d.attention.page_table = page_table_.view;
  if (options_.packed_q) d.attention.cu_seqlens_q = cu_seqlens_q_.view;
  if (options_.scale != CacheScale::none) d.attention.k_scale = k_scale_.view, d.attention.v_scale = v_scale_.view;
  d.attention.o = o_.view;
  d.attention.lse = lse_.view;
  d.attention.causal = options_.causal;
  d.attention.backend = options_.backend;
  d.k_new = k_new_.view;
  d.v_new = v_new_.view;
  if (options_.rotary > 0) d.rotary = {cos_.view, sin_.view, options_.interleaved};
  return d;
}

std::vector<std::int32_t> DecodeRig::lengths() const {
  std::vector<std::int32_t> lengths;
  for (std::int64_t b = 0; b < kBatch; ++b) lengths.push_back(seqused_.get_int32(b));
  return lengths;
}

double DecodeRig::output(std::int64_t b, std::int64_t i, std::int64_t head, std::int64_t d) const {
  return o_.get((token_index(b, i) * kHeadsQ + head) * options_.head_dim_v + d);
}

double DecodeRig::cached(const OwnedTensor& cache, const OwnedTensor& scale, std::int64_t b, std::int64_t j,
                         std::int64_t head, std::int64_t d) const {
  const double stored = cache.get(cache_index(b, j, head) * cache.view.shape[2] + d);
  return options_.scale == CacheScale::none ? stored : stored * scale.get(scale_index(b, j, head));
}

std::vector<double> DecodeRig::row(const OwnedTensor& step, std::int64_t b, std::int64_t i, std::int64_t head) const {
  const std::int64_t heads = step.view.shape[step.view.rank - 2], size = step.view.shape[step.view.rank - 1];
  std::vector<double> values(size);
  for (std::int64_t d = 0; d < size; ++d) values[d] = step.get((token_index(b, i) * heads + head) * size + d);
  return values;
}

std::vector<double> DecodeRig::turned(std::vector<double> row, std::int64_t position) const {
  const std::int64_t half = options_.rotary / 2;
  for (std::int64_t c = 0; c < half; ++c) {
    const double cos = cos_.get(position * half + c), sin = sin_.get(position * half + c);
    double& x = row[options_.interleaved ? 2 * c : c];
    double& y = row[options_.interleaved ? 2 * c + 1 : half + c];
    const double old_x = x;
    x = old_x * cos - y * sin;
    y = old_x * sin + y * cos;
  }
  return row;
}

void DecodeRig::check_row(const OwnedTensor& cache, const OwnedTensor& scale, const std::vector<double>& want,
                          std::int64_t b, std::int64_t j, std::int64_t head) const {
  double unit = 1;
  if (options_.scale != CacheScale::none) unit = scale.get(scale_index(b, j, head));
  if (options_.scale == CacheScale::token) {
    double largest = 0;
    for (double value : want) largest = std::max(largest, std::abs(value));
    ASSERT_NEAR(unit, largest / largest_value(options_.cache_type), 2e-7 * unit);
  }
  for (std::size_t d = 0; d < want.size(); ++d) {
    double exact = want[d] / unit;
    if (quantised(options_.cache_type)) {
      const double limit = largest_value(options_.cache_type);
      exact = std::clamp(exact, options_.cache_type == DType::i8 ? -128 : -limit, limit);
    }
    const double computed_in = options_.type == DType::f64 ? 1e-15 : 3e-7;  // rounding of the arithmetic
    const double got = cached(cache, scale, b, j, head, static_cast<std::int64_t>(d)) / unit;
    ASSERT_NEAR(got, exact,
                half_unit(options_.cache_type, exact) + computed_in * (std::abs(exact) + 1 / std::abs(unit)))
        << "sequence " << b << " key " << j << " head " << head << " element " << d;
  }
}

void DecodeRig::check_output(std::int64_t b, std::int64_t i, std::int64_t head) const {
  const std::int64_t kv_head = head / (kHeadsQ / kHeadsKv), num_keys = seqused_.get_int32(b) + new_tokens_[b];
  const std::int64_t position = seqused_.get_int32(b) + i;
  std::vector<double> q = row(q_, b, i, head);
  if (options_.rotary > 0) {
    q = turned(q, position);
    for (double& value : q) value = rounded(options_.type, value);
  }
  std::vector<double> sum(options_.head_dim_v, 0.0);
  double denominator = 0;
  for (std::int64_t j = 0; j < (options_.causal ? position + 1 : num_keys); ++j) {
    double score = 0;
    for (std::int64_t d = 0; d < options_.head_dim; ++d) score += q[d] * cached(k_, k_scale_, b, j, kv_head, d);
    const double weight = std::exp(score / std::sqrt(static_cast<double>(options_.head_dim)));
    denominator += weight;
    for (std::int64_t d = 0; d < options_.head_dim_v; ++d) sum[d] += weight * cached(v_, v_scale_, b, j, kv_head, d);
  }
  const double tolerance = output_tolerance(options_.type);
  for (std::int64_t d = 0; d < options_.head_dim_v; ++d) {
    const double want = sum[d] / denominator;
    ASSERT_NEAR(output(b, i, head, d), want, tolerance * (1 + std::abs(want)))
        << "sequence " << b << " token " << i << " head " << head << " element " << d;
  }
  const std::int64_t total = token_index(kBatch, 0);
  const std::int64_t lse_index =
      options_.packed_q ? head * total + token_index(b, i) : (b * kHeadsQ + head) * new_tokens_[0] + i;
  ASSERT_NEAR(lse_.get(lse_index), std::log(denominator), tolerance * (1 + std::abs(std::log(denominator))));
}

void DecodeRig::check() {
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t i = 0; i < new_tokens_[b]; ++i) {
      const std::int64_t j = seqused_.get_int32(b) + i;
      for (std::int64_t head = 0; head < kHeadsKv; ++head) {
        const std::vector<double> key = row(k_new_, b, i, head);
        ASSERT_NO_FATAL_FAILURE(check_row(k_, k_scale_, options_.rotary > 0 ? turned(key, j) : key, b, j, head));
        ASSERT_NO_FATAL_FAILURE(check_row(v_, v_scale_, row(v_new_, b, i, head), b, j, head));
      }
      for (std::int64_t head = 0; head < kHeadsQ; ++head) ASSERT_NO_FATAL_FAILURE(check_output(b, i, head));
    }
  for (std::int64_t b = 0; b < kBatch; ++b) seqused_.int32()[b] += static_cast<std::int32_t>(new_tokens_[b]);
}

}  // namespace onchip::test
