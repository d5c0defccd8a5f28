// Generation: tokens are appended to a cache one by one, keys and queries turned by rotary embedding. The last token's
// output is what one causal call over all tokens gives.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <onchip/onchip.hpp>
#include <random>
#include <vector>

int main() {
  constexpr std::int64_t tokens = 20, capacity = 64, heads_q = 4, heads_kv = 2, head_dim = 32;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(tokens * heads_q * head_dim), k(tokens * heads_kv * head_dim), v(k.size()), o(q.size());
  for (std::vector<float>* tensor : {&q, &k, &v})
    for (float& x : *tensor) x = normal(random);
  std::vector<float> cos(capacity * head_dim / 2), sin(cos.size());
  for (std::int64_t i = 0; i < capacity * head_dim / 2; ++i) {
    const double angle = (i / (head_dim / 2)) * std::pow(10000.0, -2.0 * (i % (head_dim / 2)) / head_dim);
    cos[i] = static_cast<float>(std::cos(angle)), sin[i] = static_cast<float>(std::sin(angle));
  }

  const auto generate = [&](std::int64_t tokens_a_step) {
    std::vector<float> k_cache(capacity * heads_kv * head_dim), v_cache(k_cache.size());
    std::int32_t used = 0;
    const auto view = [&](std::vector<float>& x, std::int64_t begin, std::int64_t count, std::int64_t heads) {
      return onchip::contiguous(x.data() + begin * heads * head_dim, onchip::DType::f32, {1, count, heads, head_dim});
    };
    onchip::Decode step;
    step.attention.k = view(k_cache, 0, capacity, heads_kv);
    step.attention.v = view(v_cache, 0, capacity, heads_kv);
    step.attention.seqused_k = onchip::contiguous(&used, onchip::DType::i32, {1});
    step.attention.causal = true;
    step.rotary.cos = onchip::contiguous(cos.data(), onchip::DType::f32, {capacity, head_dim / 2});
    step.rotary.sin = onchip::contiguous(sin.data(), onchip::DType::f32, {capacity, head_dim / 2});
    for (; used < tokens; used += static_cast<std::int32_t>(tokens_a_step)) {
      step.attention.q = view(q, used, tokens_a_step, heads_q);
      step.attention.o = view(o, used, tokens_a_step, heads_q);
      step.k_new = view(k, used, tokens_a_step, heads_kv);
      step.v_new = view(v, used, tokens_a_step, heads_kv);
      onchip::decode(step);
    }
    return std::vector<float>(o.end() - heads_q * head_dim, o.end());
  };

  const std::vector<float> one_by_one = generate(1), at_once = generate(tokens);
  float difference = 0;
  for (std::size_t i = 0; i < at_once.size(); ++i)
    difference = std::max(difference, std::abs(one_by_one[i] - at_once[i]));
  std::printf("token 19: o[0][0] = %.6f step by step, %.6f at once\n", one_by_one[0], at_once[0]);
  return difference < 1e-5f ? 0 : 1;
}
