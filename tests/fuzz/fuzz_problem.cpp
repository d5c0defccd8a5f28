// Any Attention, built from bytes: make_problem() accepts or refuses it. What it accepts has sequences within their
// tensors and gets a plan, or a reason why not; small ones run, over memory that ends where the tensors end.
#include <fuzzer/FuzzedDataProvider.h>

#include <limits>
#include <memory>
#include <vector>

#include "core/dispatch.hpp"
#include "core/problem.hpp"
#include "fuzz/check_tensor.hpp"

namespace onchip::fuzz {
namespace {

constexpr std::int64_t kMostElementsToRun = 4096;
constexpr std::size_t kMostWorkspaceToRun = std::size_t{64} << 20;
constexpr std::int64_t kMostIndexElements = 64;

constexpr DType kFloatTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::e4m3};
constexpr DType kKeyTypes[] = {DType::i8, DType::e4m3, DType::e5m2};
constexpr std::int64_t kOddSizes[] = {-1,
                                      0,
                                      1,
                                      std::numeric_limits<std::int32_t>::max(),
                                      std::int64_t{1} << 32,
                                      std::int64_t{1} << 62,
                                      std::numeric_limits<std::int64_t>::max(),
                                      std::numeric_limits<std::int64_t>::min()};

/// Elements of a contiguous tensor, or −1 where they are too many to have.
std::int64_t element_count(const Tensor& tensor) {
  if (tensor.rank < 0 || tensor.rank > 4) return -1;
  std::int64_t count = 1;
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] == 0) return 0;
    if (tensor.shape[d] < 0 || __builtin_mul_overflow(count, tensor.shape[d], &count)) return -1;
  }
  return count;
}

void make_contiguous(Tensor& tensor) {
  std::int64_t stride = 1;
  for (int d = tensor.rank; d-- > 0;) {
    tensor.stride[static_cast<std::size_t>(d)] = stride;
    stride *= std::max<std::int64_t>(tensor.shape[static_cast<std::size_t>(d)], 1);
  }
}

class Generator {
 public:
  explicit Generator(FuzzedDataProvider& bytes) : bytes_(bytes) {}

  Attention attention() {
    Attention a;
    draw_sizes();
    draw_inputs(a);
    draw_score_terms(a);
    draw_results(a);
    draw_options(a);
    return a;
  }

  /// Exactly as many bytes as the contiguous tensor has, of any content.
  void give_data(Tensor& tensor) {
    const std::int64_t count = element_count(tensor);
    const std::size_t size = static_cast<std::size_t>(count) * size_of(tensor.dtype);
    storage_.push_back(std::make_unique<std::byte[]>(size));
    for (std::size_t i = 0; i < size; ++i) {
      state_ = state_ * 1664525u + 1013904223u;
      storage_.back()[i] = tensor.dtype == DType::boolean ? std::byte(state_ >> 31) : std::byte(state_ >> 24);
    }
    tensor.data = storage_.back().get();
  }

 private:
  bool rarely() { return bytes_.ConsumeIntegralInRange(0, 15) == 1; }

  void draw_sizes() {
    batch_ = bytes_.ConsumeIntegralInRange<std::int64_t>(0, 3);
    seqlen_q_ = bytes_.ConsumeIntegralInRange<std::int64_t>(0, 9);
    seqlen_k_ = bytes_.ConsumeIntegralInRange<std::int64_t>(0, 20);
    heads_kv_ = bytes_.ConsumeIntegralInRange<std::int64_t>(1, 3);
    heads_q_ = heads_kv_ * bytes_.ConsumeIntegralInRange<std::int64_t>(1, 3);
    head_dim_ = bytes_.ConsumeIntegralInRange<std::int64_t>(1, 20);
    head_dim_v_ = bytes_.ConsumeBool() ? head_dim_ : bytes_.ConsumeIntegralInRange<std::int64_t>(1, 20);
    page_size_ = bytes_.ConsumeIntegralInRange<std::int64_t>(1, 8);
    pages_ = bytes_.ConsumeIntegralInRange<std::int64_t>(0, 9);
    type_ = bytes_.PickValueInArray(kFloatTypes);
    key_type_ = bytes_.ConsumeBool() ? type_ : bytes_.PickValueInArray(kKeyTypes);
  }

  /// Contiguous, most of the time.
  Tensor tensor(DType type, std::initializer_list<std::int64_t> shape) {
    Tensor t = contiguous(static_cast<void*>(nullptr), type, shape);
    if (!rarely()) return t;
    const int d = bytes_.ConsumeIntegralInRange(0, 3);
    switch (bytes_.ConsumeIntegralInRange(0, 4)) {
      case 0:
        t.shape[d] = bytes_.PickValueInArray(kOddSizes);
        break;
      case 1:
        t.stride[d] = bytes_.PickValueInArray(kOddSizes);
        break;
      case 2:
        t.shape[d] += bytes_.ConsumeIntegralInRange(-2, 2);
        break;
      case 3:
        t.rank = bytes_.ConsumeIntegralInRange(-1, 5);
        break;
      default:
        t.dtype = static_cast<DType>(bytes_.ConsumeIntegralInRange(-1, 10));
        break;
    }
    return t;
  }

  /// Small index tensors have data, nearly always plausible.
  Tensor indices(std::initializer_list<std::int64_t> shape, std::int32_t low, std::int32_t high, bool ascending) {
    Tensor t = tensor(DType::i32, shape);
    const std::int64_t count = element_count(t);
    if (count < 0 || count > kMostIndexElements || t.dtype != DType::i32 || rarely()) return t;
    make_contiguous(t);
    give_data(t);
    auto* values = static_cast<std::int32_t*>(t.data);
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = rarely() ? bytes_.ConsumeIntegral<std::int32_t>() : bytes_.ConsumeIntegralInRange(low, high);
      if (ascending && i > 0 && !rarely()) values[i] = std::max(values[i], values[i - 1]);
    }
    if (ascending && count > 0 && !rarely()) {
      values[0] = 0;
      values[count - 1] = high;
    }
    return t;
  }

  void draw_inputs(Attention& a) {
    const bool packed_q = bytes_.ConsumeBool();
    const int layout_k = bytes_.ConsumeIntegralInRange(0, 2);
    if (packed_q) {
      a.cu_seqlens_q = indices({batch_ + 1}, 0, static_cast<std::int32_t>(seqlen_q_), true);
      a.q = tensor(type_, {seqlen_q_, heads_q_, head_dim_});
    } else {
      a.q = tensor(type_, {batch_, seqlen_q_, heads_q_, head_dim_});
    }
    std::int64_t capacity = seqlen_k_;
    if (layout_k == 0) {
      a.k = tensor(key_type_, {batch_, seqlen_k_, heads_kv_, head_dim_});
      a.v = tensor(key_type_, {batch_, seqlen_k_, heads_kv_, head_dim_v_});
    } else if (layout_k == 1) {
      a.cu_seqlens_k = indices({batch_ + 1}, 0, static_cast<std::int32_t>(seqlen_k_), true);
      a.k = tensor(key_type_, {seqlen_k_, heads_kv_, head_dim_});
      a.v = tensor(key_type_, {seqlen_k_, heads_kv_, head_dim_v_});
    } else {
      const std::int64_t columns = bytes_.ConsumeIntegralInRange<std::int64_t>(0, 4);
      a.page_table =
          indices({batch_, columns}, 0, static_cast<std::int32_t>(std::max<std::int64_t>(pages_ - 1, 0)), false);
      a.k = tensor(key_type_, {pages_, page_size_, heads_kv_, head_dim_});
      a.v = tensor(key_type_, {pages_, page_size_, heads_kv_, head_dim_v_});
      capacity = columns * page_size_;
    }
    if (bytes_.ConsumeBool()) a.seqused_k = indices({batch_}, 0, static_cast<std::int32_t>(capacity), false);
    if (type_ != key_type_ || rarely()) {
      a.k_scale = scale(a.k);
      a.v_scale = scale(a.v);
    }
  }

  Tensor scale(const Tensor& rows) {
    switch (bytes_.ConsumeIntegralInRange(0, 3)) {
      case 0:
        return tensor(DType::f32, {1});
      case 1:
        return tensor(DType::f32, {heads_kv_});
      case 2:
        return tensor(DType::f32, {batch_, heads_kv_});
      default:
        break;
    }
    if (rows.rank == 3) return tensor(DType::f32, {rows.shape[0], rows.shape[1]});
    return tensor(DType::f32, {rows.shape[0], rows.shape[1], rows.shape[2]});
  }

  void draw_score_terms(Attention& a) {
    const auto scores = [&](DType type) {
      return tensor(type,
                    {bytes_.ConsumeBool() ? batch_ : 1, bytes_.ConsumeBool() ? heads_q_ : 1, seqlen_q_, seqlen_k_});
    };
    if (bytes_.ConsumeBool()) a.bias = scores(bytes_.ConsumeBool() ? DType::f32 : DType::bf16);
    if (bytes_.ConsumeBool()) a.mask = scores(DType::boolean);
    if (bytes_.ConsumeBool()) a.alibi_slopes = tensor(DType::f32, {heads_q_});
    if (bytes_.ConsumeBool()) a.sink = tensor(DType::f32, {heads_q_});
  }

  void draw_results(Attention& a) {
    const DType out = type_ == DType::e4m3 ? DType::bf16 : type_;
    const DType statistics = type_ == DType::f64 ? DType::f64 : DType::f32;
    a.o = a.q;
    a.o.dtype = out;
    if (a.q.rank > 0 && a.q.rank <= 4) a.o.shape[static_cast<std::size_t>(a.q.rank) - 1] = head_dim_v_;
    a.lse =
        a.q.rank == 3 ? tensor(statistics, {heads_q_, seqlen_q_}) : tensor(statistics, {batch_, heads_q_, seqlen_q_});
    if (!bytes_.ConsumeBool()) return;
    a.dout = a.o;
    a.dq = a.q;
    a.dk = a.k;
    a.dv = a.v;
    a.dbias = a.bias;
    a.dsink = a.sink;
  }

  void draw_options(Attention& a) {
    a.causal = bytes_.ConsumeBool();
    if (bytes_.ConsumeBool()) a.window_left = bytes_.ConsumeIntegralInRange<std::int64_t>(-2, 12);
    if (bytes_.ConsumeBool()) a.window_right = bytes_.ConsumeIntegralInRange<std::int64_t>(-2, 12);
    if (rarely()) a.window_left = bytes_.PickValueInArray(kOddSizes);
    if (bytes_.ConsumeBool()) a.softcap = bytes_.ConsumeFloatingPoint<double>();
    if (bytes_.ConsumeBool()) a.softmax_scale = bytes_.ConsumeFloatingPoint<double>();
    a.alignment = bytes_.ConsumeBool() ? Alignment::top_left : Alignment::bottom_right;
    a.backend = static_cast<Backend>(bytes_.ConsumeIntegralInRange(0, 3));
    a.num_threads = rarely() ? bytes_.ConsumeIntegral<int>() : 1;
  }

  FuzzedDataProvider& bytes_;
  std::uint32_t state_ = 1;
  std::int64_t batch_ = 0, seqlen_q_ = 0, seqlen_k_ = 0, heads_q_ = 1, heads_kv_ = 1, head_dim_ = 1, head_dim_v_ = 1;
  std::int64_t page_size_ = 1, pages_ = 0;
  DType type_ = DType::f32, key_type_ = DType::f32;
  std::vector<std::unique_ptr<std::byte[]>> storage_;
};

void check_sequences(const Problem& problem) {
  constexpr std::int64_t kMostToLookAt = 1000;
  for (std::int64_t b = 0; b < std::min(problem.batch, kMostToLookAt); ++b) {
    const Sequence s = problem.sequence(b);
    check(s.seqlen_q >= 0 && s.seqlen_q <= problem.max_seqlen_q && s.begin_q >= 0);
    check(s.seqlen_k >= 0 && s.seqlen_k <= problem.max_seqlen_k && s.begin_k >= 0);
    if (problem.layout_q == Layout::packed) check(s.begin_q + s.seqlen_q <= problem.args.q.shape[0]);
    if (problem.layout_k == Layout::packed) check(s.begin_k + s.seqlen_k <= problem.args.k.shape[0]);
    if (problem.layout_k == Layout::batched) check(s.seqlen_k <= problem.args.k.shape[1]);
    if (problem.layout_k == Layout::paged)
      check(s.seqlen_k <= problem.args.page_table.shape[1] * problem.args.k.shape[1]);
  }
}

constexpr Tensor Attention::*kDataTensors[] = {&Attention::q,     &Attention::k,       &Attention::v,
                                               &Attention::bias,  &Attention::mask,    &Attention::alibi_slopes,
                                               &Attention::sink,  &Attention::k_scale, &Attention::v_scale,
                                               &Attention::o,     &Attention::lse,     &Attention::dout,
                                               &Attention::dq,    &Attention::dk,      &Attention::dv,
                                               &Attention::dbias, &Attention::dsink};
constexpr Tensor Attention::*kIndexTensors[] = {&Attention::cu_seqlens_q, &Attention::cu_seqlens_k,
                                                &Attention::seqused_k, &Attention::page_table};

/// Gives every tensor data; false where one is too large, or an index tensor without data would stay so.
bool give_all_data(Generator& generator, Attention& a) {
  for (Tensor Attention::*member : kIndexTensors) {
    const Tensor& tensor = a.*member;
    if (tensor.present() && tensor.data == nullptr && element_count(tensor) != 0) return false;
  }
  for (Tensor Attention::*member : kDataTensors) {
    Tensor& tensor = a.*member;
    if (!tensor.present()) continue;
    const std::int64_t count = element_count(tensor);
    if (count < 0 || count > kMostElementsToRun || size_of(tensor.dtype) == 0) return false;
    make_contiguous(tensor);
    generator.give_data(tensor);
  }
  return true;
}

void run_small(Generator& generator, Attention a) {
  if (!give_all_data(generator, a)) return;
  a.num_threads = 1;
  try {
    if (plan(a, Pass::forward).workspace_bytes > kMostWorkspaceToRun) return;
    static_cast<void>(forward(a));
    if (a.dout.present() && plan(a, Pass::backward).workspace_bytes <= kMostWorkspaceToRun)
      static_cast<void>(backward(a));
  } catch (const Error& error) {
    check(error.code() != StatusCode::internal);
  }
}

}  // namespace
}  // namespace onchip::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onchip;
  FuzzedDataProvider bytes(data, size);
  fuzz::Generator generator(bytes);
  const Attention attention = generator.attention();
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    Problem problem;
    if (!make_problem(attention, pass, Use::plan, problem).ok()) continue;
    fuzz::check_sequences(problem);
    Plan planned;
    static_cast<void>(make_plan(problem, planned).ok());
    if (pass == Pass::forward) fuzz::run_small(generator, attention);
  }
  return 0;
}
