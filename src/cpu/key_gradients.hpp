// Writing dk and dv: rows that no key uses get 0, and pages that several sequences share get the sum.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "core/threads.hpp"
#include "core/views.hpp"
#include "core/workspace.hpp"
#include "cpu/row_kernels.hpp"

namespace onchip::cpu {

/// Sets every element of a tensor to 0.
void clear_tensor(const Tensor& tensor, int threads);

/// For each page of the pool, which page of which sequence it is: filled from the page table, in order of the
/// sequences.
class PageUsers {
 public:
  struct User {
    std::int32_t batch;
    std::int32_t index;  // of the page within its sequence
  };

  PageUsers(const Problem& problem, WorkspaceCursor& cursor);

  /// Reads the page table.
  void find(const Problem& problem) const;

  const User* begin(std::int64_t page) const { return users_ + first_[page]; }
  const User* end(std::int64_t page) const { return users_ + first_[page + 1]; }

 private:
  std::int64_t pages_;
  std::int64_t* first_;  // [pages + 1]
  User* users_;
};

/// One of dk and dv. Rows are handed over in the compute type, each key of a sequence once, in any order and from any
/// thread. Without pages they go straight to the tensor; with pages they wait in the workspace for finish().
template <typename T>
class KeyGradient {
 public:
  KeyGradient(const Problem& problem, const Tensor& tensor, WorkspaceCursor& cursor)
      : problem_(problem),
        tensor_(tensor),
        columns_(tensor.present() ? tensor.shape[tensor.rank - 1] : 0),
        stride_(padded<T>(columns_)),
        rows_(problem, tensor) {
    const std::int64_t rows = problem.batch * problem.max_seqlen_k * problem.num_heads_kv;
    if (paged() && present()) waiting_ = cursor.take<T>(static_cast<std::size_t>(rows * stride_));
  }

  bool present() const { return tensor_.present(); }

  /// Before any row.
  void start(int threads) const {
    if (present() && !paged() && problem_.args.seqused_k.present()) clear_tensor(tensor_, threads);
  }

  /// Row of key j = factor · values.
  void put(const Sequence& s, std::int64_t j, std::int64_t head, const T* values, T factor) const {
    const RowKernels<T>& kernels = row_kernels<T>();
    if (paged())
      kernels.store(sizeof(T) == 8 ? DType::f64 : DType::f32, values, columns_, factor, waiting(s.batch, j, head));
    else
      kernels.store(tensor_.dtype, values, columns_, factor, rows_.at(s, j, head));
  }

  /// After all rows: sums pages over their users, in order, into the tensor. `sums` is a row for each thread.
  void finish(const PageUsers& users, int threads, T* sums) const {
    if (!present() || !paged()) return;
    parallel_tasks(tensor_.shape[0], threads, [&](std::int64_t page, int thread) {
      for (std::int64_t at = 0; at < problem_.page_size; ++at)
        for (std::int64_t head = 0; head < problem_.num_heads_kv; ++head)
          write_sum(users, page, at, head, sums + thread * stride_);
    });
  }
  std::int64_t row_stride() const { return stride_; }

 private:
  bool paged() const { return problem_.layout_k == Layout::paged; }

  T* waiting(std::int64_t batch, std::int64_t j, std::int64_t head) const {
    return waiting_ + ((batch * problem_.max_seqlen_k + j) * problem_.num_heads_kv + head) * stride_;
  }

  void write_sum(const PageUsers& users, std::int64_t page, std::int64_t at, std::int64_t head, T* sum) const {
    for (std::int64_t c = 0; c < columns_; ++c) sum[c] = T{0};
    for (const PageUsers::User* user = users.begin(page); user != users.end(page); ++user) {
      const std::int64_t j = user->index * problem_.page_size + at;
      if (j < problem_.sequence(user->batch).seqlen_k)
        row_kernels<T>().add(waiting(user->batch, j, head), columns_, sum);
    }
    const std::int64_t offset = page * tensor_.stride[0] + at * tensor_.stride[1] + head * tensor_.stride[2];
    auto* row = static_cast<std::byte*>(tensor_.data) + offset * static_cast<std::int64_t>(size_of(tensor_.dtype));
    row_kernels<T>().store(tensor_.dtype, sum, columns_, T{1}, row);
  }

  const Problem& problem_;
  const Tensor& tensor_;
  std::int64_t columns_, stride_;
  KeyRows rows_;
  T* waiting_ = nullptr;
};

}  // namespace onchip::cpu
