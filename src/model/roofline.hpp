// How fast a machine can be at all: the time that each of its resources needs for one call, and which needs the most.
#pragma once

#include <string>
#include <vector>

#include "model/traffic.hpp"

namespace onchip::model {

/// One resource and the seconds it is busy: "products", "exponentials", or a memory level's name.
struct RooflineTerm {
  std::string resource;
  double seconds = 0;
};

struct Roofline {
  double intensity = 0;             ///< FLOP per byte of main memory
  std::vector<RooflineTerm> terms;  ///< resources whose speed is known
  std::string bound;                ///< the one that binds; empty when no speed is known
  double seconds = 0;
  double flops_per_second = 0;  ///< at most, on the traffic's FLOPs
};

/// All resources work at the same time, each at its peak. `dtype` is the type of the products.
Roofline roofline(const Machine& machine, const Traffic& traffic, DType dtype);

/// Kernels one after another: their times add, each bound by its own slowest resource.
Roofline roofline(const Machine& machine, const std::vector<StandardKernel>& kernels, DType dtype);

}  // namespace onchip::model
