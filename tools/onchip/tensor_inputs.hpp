// The tensors of a problem, read from files.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "onchip/io/bytes.hpp"
#include "onchip/io/file_tensor.hpp"
#include "onchip/onchip.hpp"

namespace onchip::cli {

/// An Attention over memory that it owns.
class TensorInputs {
 public:
  /// Takes every tensor of the file; a name that is no input of attention is refused.
  void read_safetensors(const std::string& path);
  void read_npy(const std::string& name, const std::string& path);

  const Attention& attention() const { return attention_; }

 private:
  void add(const FileTensor& tensor, const std::string& path);

  Attention attention_;
  std::vector<Bytes> storage_;
};

/// The positional IN.safetensors, and --q FILE.npy and its like for every input.
struct TensorInputOptions {
  std::string safetensors;
  std::vector<std::string> npy;  // by input, in the order of the table in tensor_inputs.cpp; empty: not given

  void add(CLI::App& command);
  bool any() const;
  TensorInputs read() const;
};

}  // namespace onchip::cli
