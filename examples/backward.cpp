// Gradients of a loss, loss = sum(dout * o), in f64. One of them is checked by moving its input a little.
#include <cmath>
#include <cstdio>
#include <onchip/onchip.hpp>
#include <random>
#include <vector>

int main() {
  constexpr std::int64_t seqlen = 50, heads = 3, head_dim = 16;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  const std::size_t size = seqlen * heads * head_dim;
  std::vector<double> q(size), k(size), v(size), dout(size), o(size), lse(heads * seqlen), dq(size), dk(size), dv(size);
  for (std::vector<double>* tensor : {&q, &k, &v, &dout})
    for (double& x : *tensor) x = normal(random);
  const auto view = [&](std::vector<double>& x) {
    return onchip::contiguous(x.data(), onchip::DType::f64, {1, seqlen, heads, head_dim});
  };

  onchip::Attention attention;
  attention.q = view(q), attention.k = view(k), attention.v = view(v);
  attention.o = view(o);
  attention.lse = onchip::contiguous(lse.data(), onchip::DType::f64, {1, heads, seqlen});
  attention.softcap = 5.0;
  onchip::forward(attention);  // o and lse are all that backward() needs of it
  attention.dout = view(dout);
  attention.dq = view(dq), attention.dk = view(dk), attention.dv = view(dv);
  const onchip::Plan plan = onchip::backward(attention);

  const auto loss_with = [&](double k7) {
    k[7] = k7;
    onchip::forward(attention);
    double loss = 0;
    for (std::size_t i = 0; i < size; ++i) loss += dout[i] * o[i];
    return loss;
  };
  const double at = k[7], step = 1e-5, moved = (loss_with(at + step) - loss_with(at - step)) / (2 * step);
  std::printf("%s: dk[0][0][0][7] = %.9f, by finite differences %.9f\n", plan.implementation.c_str(), dk[7], moved);
  return std::abs(dk[7] - moved) < 1e-7 ? 0 : 1;
}
