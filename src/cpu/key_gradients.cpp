#include "cpu/key_gradients.hpp"

#include <algorithm>
#include <cstring>

namespace onchip::cpu {

void clear_tensor(const Tensor& tensor, int threads) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < tensor.rank; ++d) rows *= tensor.shape[d];
  constexpr std::int64_t kRows = 256;
  parallel_tasks((rows + kRows - 1) / kRows, threads, [&](std::int64_t task, int) {
    for (std::int64_t row = task * kRows; row < std::min(rows, (task + 1) * kRows); ++row) {
      std::int64_t offset = 0, rest = row;
      for (int d = tensor.rank - 2; d >= 0; --d) {
        offset += rest % tensor.shape[d] * tensor.stride[d];
        rest /= tensor.shape[d];
      }
      // All zero bits are 0 in every type.
      std::memset(static_cast<std::byte*>(tensor.data) + offset * size, 0,
                  static_cast<std::size_t>(tensor.shape[tensor.rank - 1] * size));
    }
  });
}

PageUsers::PageUsers(const Problem& problem, WorkspaceCursor& cursor)
    : pages_(problem.layout_k == Layout::paged ? problem.args.k.shape[0] : 0) {
  if (problem.layout_k != Layout::paged) return;
  const Tensor& table = problem.args.page_table;
  first_ = cursor.take<std::int64_t>(static_cast<std::size_t>(pages_ + 1));
  users_ = cursor.take<User>(static_cast<std::size_t>(table.shape[0] * table.shape[1]));
}

void PageUsers::find(const Problem& problem) const {
  if (problem.layout_k != Layout::paged) return;
  const KeyRows keys(problem, problem.args.k);
  const auto for_each_use = [&](auto&& visit) {
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      const Sequence s = problem.sequence(b);
      for (std::int64_t j = 0; j < s.seqlen_k; j += problem.page_size)
        visit(keys.page(s, j), User{static_cast<std::int32_t>(b), static_cast<std::int32_t>(j / problem.page_size)});
    }
  };
  std::fill_n(first_, pages_ + 1, std::int64_t{0});
  for_each_use([&](std::int64_t page, User) { ++first_[page + 1]; });
  for (std::int64_t page = 0; page < pages_; ++page) first_[page + 1] += first_[page];
  // Placing a user moves its page's beginning on; afterwards each stands where the next page begins.
  for_each_use([&](std::int64_t page, User user) { users_[first_[page]++] = user; });
  for (std::int64_t page = pages_; page > 0; --page) first_[page] = first_[page - 1];
  first_[0] = 0;
}

}  // namespace onchip::cpu
