// Time and memory of a call.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "onchip/onchip.hpp"

namespace onchip::cli {

template <typename Body>
double seconds_of(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Of repeated runs: the median, and the quartiles as spread.
struct Timing {
  double median = 0, quartile1 = 0, quartile3 = 0;
  std::size_t runs = 0;
};
Timing summarise(std::vector<double> seconds);

/// How far this process's resident memory rises above what it is when the meter is made.
class MemoryMeter {
 public:
  MemoryMeter();
  /// Nothing where the kernel does not tell.
  std::optional<std::size_t> peak() const;

 private:
  std::optional<std::size_t> start_;
};

/// Memory that can be had without swapping; nothing where the kernel does not tell.
std::optional<std::size_t> available_memory();

/// What the plan expects to move from and to main memory.
double predicted_bytes(const Plan& plan);

/// "1.23 ms", "45.6 MB"
std::string time_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace onchip::cli
