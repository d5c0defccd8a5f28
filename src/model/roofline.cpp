#include "model/roofline.hpp"

#include <algorithm>

namespace onchip::model {
namespace {

void finish(Roofline& r, const Traffic& traffic) {
  const double main_bytes = traffic.main_memory().total();
  r.intensity = main_bytes > 0 ? traffic.flops / main_bytes : 0;
  r.flops_per_second = r.seconds > 0 ? traffic.flops / r.seconds : 0;
  const auto slowest =
      std::max_element(r.terms.begin(), r.terms.end(),
                       [](const RooflineTerm& a, const RooflineTerm& b) { return a.seconds < b.seconds; });
  if (slowest != r.terms.end()) r.bound = slowest->resource;
}

}  // namespace

Roofline roofline(const Machine& machine, const Traffic& traffic, DType dtype) {
  Roofline r;
  const auto add = [&](const std::string& resource, double amount, double speed) {
    if (speed <= 0) return;
    r.terms.push_back({resource, amount / speed});
    r.seconds = std::max(r.seconds, amount / speed);
  };
  add("products", traffic.flops, machine.peak_flops(dtype));
  add("exponentials", traffic.exponentials,
      machine.exp_per_cycle * static_cast<double>(machine.units) * machine.clock_hz);
  for (std::size_t i = 0; i < machine.levels.size(); ++i)
    add(machine.levels[i].name, traffic.levels[i].total(), machine.levels[i].bandwidth);
  finish(r, traffic);
  return r;
}

Roofline roofline(const Machine& machine, const std::vector<StandardKernel>& kernels, DType dtype) {
  Roofline sum;
  Traffic traffic;
  traffic.levels.resize(machine.levels.size());
  for (const StandardKernel& kernel : kernels) {
    const Roofline r = roofline(machine, kernel.traffic, dtype);
    traffic.add(kernel.traffic);
    sum.seconds += r.seconds;
    sum.terms.resize(r.terms.size());
    for (std::size_t i = 0; i < r.terms.size(); ++i) {
      sum.terms[i].resource = r.terms[i].resource;
      sum.terms[i].seconds += r.terms[i].seconds;
    }
  }
  finish(sum, traffic);
  return sum;
}

}  // namespace onchip::model
