// The matrix product that everything on the CPU is made of:
//
//   C[i][lane] = start + Σ_k A(i, k) · B[k][lane]
//
// C is scratch: row-major, 64-byte aligned, its leading dimension a multiple of the vector, so that lanes need no
// masks. B is row-major as well and has whole vectors of lanes. A is any strided matrix, whose elements are broadcast:
// A(i, k) = a[i·a_row_stride + k·a_col_stride]. A and B need no alignment, so they may lie in the caller's tensor.
//
//   scores        Sᵀ [key][query]  = K · Qᵀ      A = K rows                         lanes = queries
//   output        Oᵀ [dim][query] += Vᵀ · Pᵀ     A(i = dim, k = key) = V[key][dim]   lanes = queries
//   backward      dPᵀ = V · dOᵀ;  dV += Pᵀ · dO, dK += dSᵀ · Q (lanes = dims);  dQ += dS · K (A(i = query, k = key))
//
// A block of rows × vectors of C stays in registers over a run of k. Each k takes `vectors` loads of B and `rows`
// broadcasts of A for rows × vectors multiply-adds. A run starts from zero and is added to C when it ends, so that the
// rounding error grows with the length and the number of runs instead of with their product. Registers are named one by
// one because SVE vectors cannot be array elements.
#if defined(ONCHIP_CPU_SIMD_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONCHIP_CPU_SIMD_GEMM_INL_H_
#undef ONCHIP_CPU_SIMD_GEMM_INL_H_
#else
#define ONCHIP_CPU_SIMD_GEMM_INL_H_
#endif

#include <cstdint>

#include "cpu/simd/targets.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onchip::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// What a product is added to: nothing, C, or C times a factor for each lane.
enum class GemmStart { zero, add, rescale };

/// Run of the products q·k: with long runs, logits in the hundreds cost more than the error allowed to f32.
inline constexpr int64_t kScoreRun = 32;

/// 32 vector registers (AVX-512, NEON, SVE) or 16 (AVX2).
inline constexpr bool kManyRegisters = HWY_MAX_BYTES >= 64 || HWY_ARCH_ARM_A64;

/// Vectors of lanes a register block holds. Panels of this many vectors are the widest that one pass over A serves.
inline constexpr int kPanelVectors = 3;

/// The most rows that fit beside `vectors` vectors of B and a broadcast.
constexpr int max_block_rows(int vectors) {
  if (kManyRegisters) return 8;
  return vectors == 3 ? 4 : vectors == 2 ? 6 : 8;
}

/// Lanes in one vector of T.
template <typename T>
HWY_INLINE int64_t vector_lanes() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

template <typename T>
struct GemmOperands {
  const T* HWY_RESTRICT a;
  int64_t a_row_stride;
  int64_t a_col_stride;
  const T* HWY_RESTRICT b;  // [k][lanes]
  int64_t b_stride;
  T* HWY_RESTRICT c;  // [rows][lanes]
  int64_t c_stride;
  const T* HWY_RESTRICT factor;  // [lanes], read for GemmStart::rescale
  int64_t run = INT64_MAX;       // most terms in one run
};

#define ONCHIP_GEMM_ROWS(APPLY) APPLY(0) APPLY(1) APPLY(2) APPLY(3) APPLY(4) APPLY(5) APPLY(6) APPLY(7)

#define ONCHIP_GEMM_DECLARE(r) auto c##r##0 = zero, c##r##1 = zero, c##r##2 = zero;

#define ONCHIP_GEMM_ZERO(r) c##r##0 = c##r##1 = c##r##2 = zero;

#define ONCHIP_GEMM_MULTIPLY(r)                                         \
  if constexpr (r < kRows) {                                            \
    const auto a_r = hn::Set(d, a[r * op.a_row_stride]);                \
    c##r##0 = hn::MulAdd(a_r, b0, c##r##0);                             \
    if constexpr (kVectors > 1) c##r##1 = hn::MulAdd(a_r, b1, c##r##1); \
    if constexpr (kVectors > 2) c##r##2 = hn::MulAdd(a_r, b2, c##r##2); \
  }

#define ONCHIP_GEMM_FINISH(r)                                                                          \
  if constexpr (r < kRows) {                                                                           \
    T* row = op.c + r * op.c_stride;                                                                   \
    finish_run(d, start, c##r##0, op.factor, row);                                                     \
    if constexpr (kVectors > 1) finish_run(d, start, c##r##1, op.factor + lanes, row + lanes);         \
    if constexpr (kVectors > 2) finish_run(d, start, c##r##2, op.factor + 2 * lanes, row + 2 * lanes); \
  }

/// Adds one vector of a run to C.
template <class D, class V, typename T>
HWY_INLINE void finish_run(D d, GemmStart start, V sum, const T* HWY_RESTRICT factor, T* HWY_RESTRICT c) {
  if (start == GemmStart::add) sum = hn::Add(hn::Load(d, c), sum);
  if (start == GemmStart::rescale) sum = hn::MulAdd(hn::Load(d, c), hn::Load(d, factor), sum);
  hn::Store(sum, d, c);
}

/// kRows × kVectors vectors of C.
template <int kRows, int kVectors, typename T>
HWY_NOINLINE void gemm_block(GemmStart start, int64_t depth, const GemmOperands<T>& operands) {
  const GemmOperands<T> op = operands;
  const hn::ScalableTag<T> d;
  const int64_t lanes = vector_lanes<T>();
  const auto zero = hn::Zero(d);
  ONCHIP_GEMM_ROWS(ONCHIP_GEMM_DECLARE)
  const T* HWY_RESTRICT a = op.a;
  const T* HWY_RESTRICT b = op.b;
  do {
    const int64_t run = depth < op.run ? depth : op.run;
    ONCHIP_GEMM_ROWS(ONCHIP_GEMM_ZERO)
    for (int64_t k = 0; k < run; ++k) {
      const auto b0 = hn::LoadU(d, b);
      [[maybe_unused]] const auto b1 = kVectors > 1 ? hn::LoadU(d, b + (kVectors > 1 ? lanes : 0)) : b0;
      [[maybe_unused]] const auto b2 = kVectors > 2 ? hn::LoadU(d, b + (kVectors > 2 ? 2 * lanes : 0)) : b0;
      ONCHIP_GEMM_ROWS(ONCHIP_GEMM_MULTIPLY)
      a += op.a_col_stride;
      b += op.b_stride;
    }
    ONCHIP_GEMM_ROWS(ONCHIP_GEMM_FINISH)
    start = GemmStart::add;
    depth -= run;
  } while (depth > 0);
}

#undef ONCHIP_GEMM_ROWS
#undef ONCHIP_GEMM_DECLARE
#undef ONCHIP_GEMM_ZERO
#undef ONCHIP_GEMM_MULTIPLY
#undef ONCHIP_GEMM_FINISH

/// For gemm() with nothing to do between blocks.
struct NoWork {
  void operator()() const {}
};

/// Blocks of kRows while they last, then halves: every row is done by exactly one block.
template <int kRows, int kVectors, typename T, class Between>
HWY_INLINE void gemm_rows(GemmStart start, int64_t rows, int64_t depth, GemmOperands<T>& op, const Between& between) {
  for (; rows >= kRows; rows -= kRows) {
    between();
    gemm_block<kRows, kVectors>(start, depth, op);
    op.a += kRows * op.a_row_stride;
    op.c += kRows * op.c_stride;
  }
  if constexpr (kRows > 1) {
    if (rows > 0) gemm_rows<(kRows == 6 ? 4 : kRows / 2), kVectors>(start, rows, depth, op, between);
  }
}

/// Most blocks that gemm() cuts one panel of `rows` rows into.
constexpr int64_t gemm_blocks(int64_t rows) { return rows / max_block_rows(kPanelVectors) + 3; }

/// `rows` × `lanes` of C, `lanes` a multiple of vector_lanes<T>(), summed over `depth` terms in order of k, each lane
/// and row by itself: its bits do not depend on the lanes and rows around it. `between` is called before each block.
template <typename T, class Between = NoWork>
HWY_INLINE void gemm(GemmStart start, int64_t rows, int64_t lanes, int64_t depth, const GemmOperands<T>& operands,
                     const Between& between = {}) {
  const int64_t vector = vector_lanes<T>();
  const int64_t panel = kPanelVectors * vector;
  for (int64_t lane = 0; lane < lanes; lane += panel) {
    GemmOperands<T> op = operands;
    op.b += lane;
    op.c += lane;
    // Where there is no factor it is not read, but its address is still moved on, which null may not be.
    op.factor = operands.factor != nullptr ? operands.factor + lane : op.b;
    const int64_t left = lanes - lane;
    if (left >= 3 * vector) {
      gemm_rows<max_block_rows(3), 3>(start, rows, depth, op, between);
    } else if (left >= 2 * vector) {
      gemm_rows<max_block_rows(2), 2>(start, rows, depth, op, between);
    } else {
      gemm_rows<max_block_rows(1), 1>(start, rows, depth, op, between);
    }
  }
}

}  // namespace onchip::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONCHIP_CPU_SIMD_GEMM_INL_H_
