// Vectorised work on single rows: conversion, sums, and the softmax of one query forward and backward. Compiled for
// every instruction set, chosen at run time (row_kernels.cpp).
#pragma once

#include <cstdint>

#include "onchip/onchip.hpp"
#include "shared/mask_range.hpp"

namespace onchip::cpu {

/// Elements of T that rows of scratch are padded to: a whole cache line, which holds whole vectors.
template <typename T>
constexpr std::int64_t padded(std::int64_t elements) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  return (elements + kLine - 1) / kLine * kLine;
}

/// What turns the products q_i·k_j of one query into scores. Row pointers are scratch indexed by key.
template <typename T>
struct ScoreRow {
  T scale;
  T softcap;         // 0: none
  const T* bias;     // null: none
  const T* mask;     // null: none; 0 hides the key
  T slope;           // of ALiBi, 0: none
  T position;        // i + shift
  KeyRange visible;  // through causal and window
};

/// Where a row's softmax is: P = factor·exp(score − shift), and lse, which has rounded away part of that where the
/// logits are huge.
template <typename T>
struct RowSoftmax {
  T lse;  // −∞: no key is left
  T shift;
  T factor;
};

/// Rows marked "scratch" are 64-byte aligned and padded<T>() elements long; whole vectors of them are written.
template <typename T>
struct RowKernels {
  /// scratch dst[0, n) = factor · row[0, n), zeros after it.
  void (*load)(DType dtype, const void* row, std::int64_t n, T factor, T* dst);
  /// row[0, n) = factor · src[0, n), rounded to `dtype`.
  void (*store)(DType dtype, const T* src, std::int64_t n, T factor, void* row);
  bool (*finite)(const T* row, std::int64_t n);
  T (*square_sum)(const T* row, std::int64_t n);
  /// acc[0, n) += row[0, n)
  void (*add)(const T* row, std::int64_t n, T* acc);
  /// Σ a[i]·b[i], one term after the other, as matrix products sum: where probability is all on one key, delta and dP
  /// are then equal to the last bit, and their difference is the 0 that it should be.
  T (*dot)(const T* a, const T* b, std::int64_t n);

  /// In scratch s[0, n): products become probabilities, 0 for hidden keys. `sink` is −∞ for none.
  RowSoftmax<T> (*softmax)(const ScoreRow<T>& row, T sink, std::int64_t n, T* s);

  /// In scratch s[0, n): products become P; in scratch g[0, n): dP becomes the gradient of the
  /// scaled products, P·(dP − delta)·(1 − tanh²). Before the softcap's factor it is added to dbias, unless that is
  /// null. Hidden keys get and add 0.
  void (*softmax_backward)(const ScoreRow<T>& row, const RowSoftmax<T>& softmax, T delta, std::int64_t n, T* s, T* g,
                           T* dbias);
};

/// The kernels for this machine; T is float or double.
template <typename T>
const RowKernels<T>& row_kernels();

}  // namespace onchip::cpu
