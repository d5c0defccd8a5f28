// A problem given by its shape alone, from options.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "onchip/onchip.hpp"

namespace onchip::cli {

/// Sizes of a problem whose sequences all have the same lengths. −1 (or an empty type): as its counterpart.
struct Shape {
  std::int64_t batch = 1;
  std::int64_t seqlen_q = 1024;
  std::int64_t seqlen_k = -1;
  std::int64_t heads = 8;
  std::int64_t kv_heads = -1;
  std::int64_t head_dim = 64;
  std::int64_t head_dim_v = -1;
  std::int64_t page_size = 0;  // 0: not paged
  bool packed = false;
  DType dtype = DType::f32;
  DType kv_dtype = DType::f32;
  bool bias = false, mask = false, alibi = false, sink = false;
};

/// An Attention without data, except for the small index tensors, which it owns.
struct ShapedProblem {
  Attention attention;
  std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_k, page_table;
};

/// The same with nothing left open.
Shape resolved(Shape shape);

/// Refuses sizes that no tensor can have; everything else is for the library to judge.
ShapedProblem make_shaped_problem(const Shape& shape);

/// The options that fill in a Shape.
class ShapeOptions {
 public:
  Shape shape;
  std::string dtype = "f32";
  std::string kv_dtype;
  std::vector<std::string> with;

  void add(CLI::App& command);
  ShapedProblem problem() const;
  /// The name of an option that was given; empty when none was.
  std::string first_given() const;

 private:
  std::vector<const CLI::Option*> options_;
};

}  // namespace onchip::cli
