// Matrix products by OpenBLAS, on row-major matrices of float or double.
#pragma once

#include <cblas.h>
#include <omp.h>

#include <cstdint>

namespace onchip::cpu {

/// While one lives, calls into OpenBLAS from this thread, and from parallel regions it opens, use one thread each, so
/// that their bits do not depend on the number of threads.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SingleThreadedBlas() { omp_set_num_threads(threads_); }
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  int threads_;
};

enum class Transposed : bool { no, yes };

template <typename T>
struct Operand {
  const T* data;
  std::int64_t row_stride;
  Transposed transposed = Transposed::no;
};

/// C[m][n] = A·B + (accumulate ? C : 0), where A is [m][k] and B is [k][n] after transposition.
template <typename T>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Operand<T>& a, const Operand<T>& b, bool accumulate,
              T* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (accumulate) return;
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t column = 0; column < n; ++column) c[row * c_stride + column] = T{0};
    return;
  }
  const auto layout = [](const Operand<T>& x) { return x.transposed == Transposed::yes ? CblasTrans : CblasNoTrans; };
  const auto call = [&](auto gemm) {
    gemm(CblasRowMajor, layout(a), layout(b), static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k),
         T{1}, a.data, static_cast<blasint>(a.row_stride), b.data, static_cast<blasint>(b.row_stride),
         accumulate ? T{1} : T{0}, c, static_cast<blasint>(c_stride));
  };
  if constexpr (sizeof(T) == sizeof(float))
    call(cblas_sgemm);
  else
    call(cblas_dgemm);
}

}  // namespace onchip::cpu
