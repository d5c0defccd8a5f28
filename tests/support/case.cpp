#include "support/case.hpp"

#include <fmt/format.h>

#include "reference/attention.hpp"

namespace onchip::test {
namespace {

std::string one_tensor(const char* tensor_name, const TensorBuffer& buffer) {
  if (!buffer.present()) return "";
  return fmt::format(" {} {}{}", tensor_name, name(buffer.view().dtype), describe(buffer.view()));
}

std::string integers(const char* tensor_name, const TensorBuffer& buffer) {
  if (!buffer.present()) return "";
  std::string text = fmt::format(" {}=", tensor_name);
  for (const double value : buffer.values()) text += fmt::format("{},", value);
  text.pop_back();
  return text;
}

}  // namespace

Attention Case::inputs() const {
  Attention a = options;
  a.q = q.view(), a.k = k.view(), a.v = v.view();
  a.bias = bias.view(), a.mask = mask.view(), a.alibi_slopes = alibi_slopes.view(), a.sink = sink.view();
  a.cu_seqlens_q = cu_seqlens_q.view(), a.cu_seqlens_k = cu_seqlens_k.view();
  a.seqused_k = seqused_k.view(), a.page_table = page_table.view();
  a.k_scale = k_scale.view(), a.v_scale = v_scale.view();
  return a;
}

Attention Case::forward_args() const {
  Attention a = inputs();
  a.o = o.view(), a.lse = lse.view();
  return a;
}

Attention Case::backward_args() const {
  Attention a = inputs();
  a.o = o_in.view(), a.lse = lse_in.view(), a.dout = dout.view();
  a.dq = dq.view(), a.dk = dk.view(), a.dv = dv.view(), a.dbias = dbias.view(), a.dsink = dsink.view();
  return a;
}

std::vector<const TensorBuffer*> Case::inputs_of(Pass pass) const {
  std::vector<const TensorBuffer*> list{
      &q,         &k,          &v,       &bias,   &mask, &alibi_slopes, &sink, &cu_seqlens_q, &cu_seqlens_k,
      &seqused_k, &page_table, &k_scale, &v_scale};
  if (pass == Pass::backward) list.insert(list.end(), {&o_in, &lse_in, &dout});
  std::erase_if(list, [](const TensorBuffer* buffer) { return !buffer->present(); });
  return list;
}

std::vector<TensorBuffer*> Case::results_of(Pass pass) {
  std::vector<TensorBuffer*> list{&o, &lse};
  if (pass == Pass::backward) list = {&dq, &dk, &dv, &dbias, &dsink};
  std::erase_if(list, [](const TensorBuffer* buffer) { return !buffer->present(); });
  return list;
}

std::string describe(const Case& c) {
  std::string text = one_tensor("q", c.q) + one_tensor("k", c.k) + one_tensor("v", c.v) + one_tensor("bias", c.bias) +
                     one_tensor("mask", c.mask) + one_tensor("alibi_slopes", c.alibi_slopes) +
                     one_tensor("sink", c.sink) + one_tensor("k_scale", c.k_scale) + one_tensor("v_scale", c.v_scale) +
                     integers("cu_seqlens_q", c.cu_seqlens_q) + integers("cu_seqlens_k", c.cu_seqlens_k) +
                     integers("seqused_k", c.seqused_k) + one_tensor("page_table", c.page_table);
  const Attention& o = c.options;
  if (o.softmax_scale) text += fmt::format(" scale={:.3g}", *o.softmax_scale);
  if (o.softcap > 0) text += fmt::format(" softcap={:.3g}", o.softcap);
  if (o.causal) text += " causal";
  if (o.window_left >= 0 || o.window_right >= 0) text += fmt::format(" window={},{}", o.window_left, o.window_right);
  if (o.alignment == Alignment::top_left) text += " top_left";
  if (o.batch_invariant) text += " batch_invariant";
  text += fmt::format(" threads={}", o.num_threads);
  if (c.gradients())
    text += " gradients" + one_tensor("dout", c.dout) + one_tensor("dq", c.dq) + one_tensor("dk", c.dk) +
            one_tensor("dv", c.dv) + one_tensor("dbias", c.dbias) + one_tensor("dsink", c.dsink);
  return text.substr(1);
}

void add_results(Case& c, bool gradients) {
  const Tensor q = c.q.view();
  const DType type = q.dtype == DType::e4m3 ? DType::bf16 : q.dtype;
  const DType statistics = q.dtype == DType::f64 ? DType::f64 : DType::f32;
  std::vector<std::int64_t> o_shape(q.shape.begin(), q.shape.begin() + q.rank), lse_shape;
  if (q.rank == 3)
    lse_shape = {q.shape[1], q.shape[0]};
  else
    lse_shape = {q.shape[0], q.shape[2], q.shape[1]};
  o_shape.back() = c.v.view().shape[c.v.view().rank - 1];
  c.o = TensorBuffer(type, o_shape), c.lse = TensorBuffer(statistics, lse_shape);
  if (!gradients) return;
  const auto like = [](const TensorBuffer& of) {
    const Tensor t = of.view();
    return of.present() ? TensorBuffer(t.dtype, {t.shape.begin(), t.shape.begin() + t.rank}) : TensorBuffer();
  };
  c.o_in = c.o, c.lse_in = c.lse, c.dout = like(c.o);
  c.dq = like(c.q), c.dk = like(c.k), c.dv = like(c.v), c.dbias = like(c.bias), c.dsink = like(c.sink);
}

void set_statistics(Case& c) {
  const Results exact = exact_attention(c.inputs(), false);
  c.o_in.assign(exact.o);
  c.lse_in.assign(exact.lse);
}

}  // namespace onchip::test
