// Causal attention with grouped heads, checked against textbook attention.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <onchip/onchip.hpp>
#include <random>
#include <vector>

int main() {
  constexpr std::int64_t batch = 2, seqlen = 300, heads_q = 8, heads_kv = 2, head_dim = 64;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(batch * seqlen * heads_q * head_dim), k(batch * seqlen * heads_kv * head_dim), v(k.size());
  for (std::vector<float>* tensor : {&q, &k, &v})
    for (float& x : *tensor) x = normal(random);
  std::vector<float> o(q.size()), lse(batch * heads_q * seqlen), expected(q.size());

  onchip::Attention attention;
  attention.q = onchip::contiguous(q.data(), onchip::DType::f32, {batch, seqlen, heads_q, head_dim});
  attention.k = onchip::contiguous(k.data(), onchip::DType::f32, {batch, seqlen, heads_kv, head_dim});
  attention.v = onchip::contiguous(v.data(), onchip::DType::f32, {batch, seqlen, heads_kv, head_dim});
  attention.o = onchip::contiguous(o.data(), onchip::DType::f32, {batch, seqlen, heads_q, head_dim});
  attention.lse = onchip::contiguous(lse.data(), onchip::DType::f32, {batch, heads_q, seqlen});
  attention.causal = true;
  const onchip::Plan plan = onchip::forward(attention);

  attention.o.data = expected.data();
  attention.backend = onchip::Backend::standard;
  onchip::forward(attention);
  float difference = 0;
  for (std::size_t i = 0; i < o.size(); ++i) difference = std::max(difference, std::abs(o[i] - expected[i]));
  std::printf("%s: o[0][0][0][0] = %.6f, lse[0][0][299] = %.6f, largest difference from textbook attention %.1e\n",
              plan.implementation.c_str(), o[0], lse[seqlen - 1], difference);
  return difference < 1e-5f ? 0 : 1;
}
