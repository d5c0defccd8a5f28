// A case with its tensors in device memory.
#pragma once

#include <string>
#include <vector>

#include "cuda/device_image.hpp"
#include "cuda/gpu.hpp"
#include "support/case.hpp"
#include "support/run.hpp"

namespace onchip::test {

class DeviceCase {
 public:
  /// Copies every buffer of the forward pass, guards and poison included.
  explicit DeviceCase(Case& c);

  /// The problem, on device 0 and `stream`.
  Attention args(const TestStream& stream) const;

  /// Copies the results back into the case.
  void read_results();

 private:
  Case& case_;
  DeviceImage image_;
};

/// Runs the forward pass on the GPU through the public interface, on a stream of its own where none is given.
Outcome run_on_gpu(Case& c, const TestStream& stream);
Outcome run_on_gpu(Case& c);

/// Runs the forward pass on the GPU through the public interface and holds the results against the reference. One line
/// for each failure.
std::vector<std::string> check_on_gpu(Case& c, const TestStream& stream);

}  // namespace onchip::test
