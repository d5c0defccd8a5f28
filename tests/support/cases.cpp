#include "support/cases.hpp"

#include "cuda/device_case.hpp"
#include "support/run.hpp"

namespace onchip::test {

Case dense_case(DType type, const Shape& s, std::uint64_t seed, bool gradients) {
  Rng rng(seed);
  const auto normal = [&] { return rng.normal(); };
  Case c;
  c.q = TensorBuffer(type, {s.batch, s.seqlen_q, s.heads, s.dim});
  c.k = TensorBuffer(type, {s.batch, s.seqlen_k, s.kv_heads, s.dim});
  c.v = TensorBuffer(type, {s.batch, s.seqlen_k, s.kv_heads, s.dim_v});
  for (TensorBuffer* tensor : {&c.q, &c.k, &c.v}) tensor->fill(normal);
  add_results(c, gradients);
  if (gradients) c.dout.fill(normal);
  return c;
}

std::string run_passes(Case& c, Backend backend) {
  c.options.backend = backend;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && !c.gradients()) break;
    const Outcome outcome = run_guarded(c, pass, [&](const Attention& args, Pass of) {
      return backend == Backend::cuda ? run_on_gpu(c) : run_public(args, of);
    });
    if (!outcome.error.empty()) return outcome.error;
  }
  return "";
}

std::vector<std::vector<std::byte>> result_bytes(Case& c) {
  std::vector<std::vector<std::byte>> bytes;
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const TensorBuffer* result : c.results_of(pass)) bytes.push_back(result->bytes());
  return bytes;
}

}  // namespace onchip::test
