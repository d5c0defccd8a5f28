// One attention problem of the tests: the tensors, with their memory, and the options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onchip/onchip.hpp"
#include "support/tensor_buffer.hpp"

namespace onchip::test {

struct Case {
  TensorBuffer q, k, v, bias, mask, alibi_slopes, sink;
  TensorBuffer cu_seqlens_q, cu_seqlens_k, seqused_k, page_table, k_scale, v_scale;
  TensorBuffer o, lse;  // results of the forward pass
  TensorBuffer o_in, lse_in, dout;
  TensorBuffer dq, dk, dv, dbias, dsink;
  Attention options;  // everything but the tensors

  bool gradients() const { return dout.present(); }
  /// Inputs and options, no results.
  Attention inputs() const;
  Attention forward_args() const;
  Attention backward_args() const;

  /// Pointers to the inputs of a pass, and to its results.
  std::vector<const TensorBuffer*> inputs_of(Pass pass) const;
  std::vector<TensorBuffer*> results_of(Pass pass);
};

/// One line: types, shapes, strides, features.
std::string describe(const Case& c);

/// Adds row-major o, lse, o_in, lse_in for the case's inputs (and dout with all gradients): for hand-written tests.
void add_results(Case& c, bool gradients);

/// Fills o_in and lse_in from exact results, rounded to their types.
void set_statistics(Case& c);

}  // namespace onchip::test
