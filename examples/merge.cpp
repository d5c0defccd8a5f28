// The keys are cut in two, as over two machines. Merging the parts by their lse gives attention over all keys.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <onchip/onchip.hpp>
#include <random>
#include <vector>

int main() {
  constexpr std::int64_t queries = 7, keys = 100, cut = 30, heads = 2, head_dim = 24;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(queries * heads * head_dim), k(keys * heads * head_dim), v(k.size());
  for (std::vector<float>* tensor : {&q, &k, &v})
    for (float& x : *tensor) x = normal(random);
  const auto view = [&](float* data, std::int64_t rows) {
    return onchip::contiguous(data, onchip::DType::f32, {1, rows, heads, head_dim});
  };
  const auto attend = [&](std::int64_t begin, std::int64_t end, std::vector<float>& o, std::vector<float>& lse) {
    o.resize(q.size()), lse.resize(heads * queries);
    onchip::Attention attention;
    attention.q = view(q.data(), queries);
    attention.k = view(k.data() + begin * heads * head_dim, end - begin);
    attention.v = view(v.data() + begin * heads * head_dim, end - begin);
    attention.o = view(o.data(), queries);
    attention.lse = onchip::contiguous(lse.data(), onchip::DType::f32, {1, heads, queries});
    onchip::forward(attention);
    return attention;
  };
  std::vector<float> o_whole, lse_whole, o_first, lse_first, o_second, lse_second;
  attend(0, keys, o_whole, lse_whole);
  const onchip::Attention first = attend(0, cut, o_first, lse_first), second = attend(cut, keys, o_second, lse_second);

  const onchip::Tensor o_parts[] = {first.o, second.o}, lse_parts[] = {first.lse, second.lse};
  onchip::merge(o_parts, lse_parts, first.o, first.lse);  // a part may hold the result

  float difference = 0;
  for (std::size_t i = 0; i < o_whole.size(); ++i) difference = std::max(difference, std::abs(o_first[i] - o_whole[i]));
  std::printf("lse[0][0] = %.6f merged, %.6f of all keys; largest difference of o %.1e\n", lse_first[0], lse_whole[0],
              difference);
  return difference < 1e-5f && std::abs(lse_first[0] - lse_whole[0]) < 1e-5f ? 0 : 1;
}
