// wgmma: a warpgroup's product of a 64-row tile with a tile in shared memory, accumulated in registers while the warps
// go on. (PTX ISA, sm_90a)
//
// Fragments, for lane l of warp w of the warpgroup with g = l/4 and t = l%4:
//   accumulator m64nN: c[4n], c[4n+1] hold row 16w+g, columns 8n+2t and 8n+2t+1; c[4n+2], c[4n+3] the same of row g+8.
//   A from registers (m64k16): a[0] row g, columns 2t, 2t+1; a[1] row g+8; a[2], a[3] the same, 8 columns on. So two
//   neighbouring blocks of an accumulator, rounded in pairs, are one fragment of A.
#pragma once

#include <cstdint>

namespace onchip::cuda {

/// Shared-memory operand in the 128-byte swizzle. K-major (rows of 64 elements along k, 8 rows an atom): step_bytes is
/// the distance of 8-row groups, chunk_bytes is not read. MN-major (rows of 64 elements along n): step_bytes is the
/// distance of groups of 8 k, chunk_bytes that of 64-column chunks. (PTX ISA, "Matrix descriptor format")
class MatrixDescriptor {
 public:
  __forceinline__ MatrixDescriptor(std::uint32_t shared, int step_bytes, int chunk_bytes)
      : low_(uniform((shared & 0x3FFFF) >> 4 | static_cast<std::uint32_t>(chunk_bytes >> 4) << 16)),
        high_(kSwizzle128 | static_cast<std::uint32_t>(step_bytes >> 4)) {}

  /// Of the operand that begins `bytes` further on.
  __forceinline__ std::uint64_t at(int bytes) const {
    return static_cast<std::uint64_t>(high_) << 32 | (low_ + static_cast<std::uint32_t>(bytes >> 4));
  }

 private:
  static constexpr std::uint32_t kSwizzle128 = 1u << 30;

  /// A value that all lanes have, so that the assembler knows: then descriptors are computed in uniform registers.
  static __forceinline__ std::uint32_t uniform(std::uint32_t value) {
    asm volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xFFFFFFFF;" : "+r"(value));
    return value;
  }

  std::uint32_t low_, high_;
};

/// Before the first product that reads registers which ordinary instructions have written.
__forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most kPending of the committed groups are under way.
template <int kPending>
__forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving uses of registers across a wait that it cannot relate to them.
template <int kCount>
__forceinline__ void pin_registers(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

/// acc = A·B (+ acc, where `keep` is set) over 16 elements of k. With A in shared memory (K-major) B is K-major too, a
/// row for each column of acc: q·kᵀ. With A in registers B is MN-major, a row for each k: p·v.
template <bool kF16, int kColumns>
struct Wgmma;

// Operand lists of n accumulator registers.
#define ONCHIP_TEXT_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ONCHIP_TEXT_16 ONCHIP_TEXT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ONCHIP_TEXT_24 ONCHIP_TEXT_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define ONCHIP_TEXT_32 ONCHIP_TEXT_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define ONCHIP_TEXT_40 ONCHIP_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ONCHIP_TEXT_48 ONCHIP_TEXT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ONCHIP_TEXT_56 ONCHIP_TEXT_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define ONCHIP_TEXT_64 ONCHIP_TEXT_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define ONCHIP_TEXT_72 ONCHIP_TEXT_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define ONCHIP_TEXT_80 ONCHIP_TEXT_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define ONCHIP_TEXT_88 ONCHIP_TEXT_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define ONCHIP_TEXT_96 ONCHIP_TEXT_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define ONCHIP_TEXT_104 ONCHIP_TEXT_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define ONCHIP_TEXT_112 ONCHIP_TEXT_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define ONCHIP_TEXT_120 ONCHIP_TEXT_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define ONCHIP_TEXT_128 ONCHIP_TEXT_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define ONCHIP_EIGHT(d, i)                                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define ONCHIP_REGISTERS_8(d) ONCHIP_EIGHT(d, 0)
#define ONCHIP_REGISTERS_16(d) ONCHIP_REGISTERS_8(d), ONCHIP_EIGHT(d, 8)
#define ONCHIP_REGISTERS_24(d) ONCHIP_REGISTERS_16(d), ONCHIP_EIGHT(d, 16)
#define ONCHIP_REGISTERS_32(d) ONCHIP_REGISTERS_24(d), ONCHIP_EIGHT(d, 24)
#define ONCHIP_REGISTERS_40(d) ONCHIP_REGISTERS_32(d), ONCHIP_EIGHT(d, 32)
#define ONCHIP_REGISTERS_48(d) ONCHIP_REGISTERS_40(d), ONCHIP_EIGHT(d, 40)
#define ONCHIP_REGISTERS_56(d) ONCHIP_REGISTERS_48(d), ONCHIP_EIGHT(d, 48)
#define ONCHIP_REGISTERS_64(d) ONCHIP_REGISTERS_56(d), ONCHIP_EIGHT(d, 56)
#define ONCHIP_REGISTERS_72(d) ONCHIP_REGISTERS_64(d), ONCHIP_EIGHT(d, 64)
#define ONCHIP_REGISTERS_80(d) ONCHIP_REGISTERS_72(d), ONCHIP_EIGHT(d, 72)
#define ONCHIP_REGISTERS_88(d) ONCHIP_REGISTERS_80(d), ONCHIP_EIGHT(d, 80)
#define ONCHIP_REGISTERS_96(d) ONCHIP_REGISTERS_88(d), ONCHIP_EIGHT(d, 88)
#define ONCHIP_REGISTERS_104(d) ONCHIP_REGISTERS_96(d), ONCHIP_EIGHT(d, 96)
#define ONCHIP_REGISTERS_112(d) ONCHIP_REGISTERS_104(d), ONCHIP_EIGHT(d, 104)
#define ONCHIP_REGISTERS_120(d) ONCHIP_REGISTERS_112(d), ONCHIP_EIGHT(d, 112)
#define ONCHIP_REGISTERS_128(d) ONCHIP_REGISTERS_120(d), ONCHIP_EIGHT(d, 120)

#define ONCHIP_WGMMA_TEXT(columns, count, type, factors, keep, flags)                                               \
  "{\n.reg .pred keep;\nsetp.ne.b32 keep, " keep ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type \
  "." type " {" ONCHIP_TEXT_##count "}, " factors ", keep, 1, 1, " flags ";\n}"

#define ONCHIP_WGMMA_SHARED(columns, count, type, n0, n1, n2)                  \
  asm volatile(ONCHIP_WGMMA_TEXT(columns, count, type, n0 ", " n1, n2, "0, 0") \
               : ONCHIP_REGISTERS_##count(acc)                                 \
               : "l"(a), "l"(b), "r"(static_cast<int>(keep)))

#define ONCHIP_WGMMA_REGISTERS(columns, count, type, n0, n1, n2, n3, n4, n5)                             \
  asm volatile(ONCHIP_WGMMA_TEXT(columns, count, type, "{" n0 ", " n1 ", " n2 ", " n3 "}, " n4, n5, "1") \
               : ONCHIP_REGISTERS_##count(acc)                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(keep)))

// n0 … n5 are the numbers of the operands after the accumulator's.
#define ONCHIP_WGMMA(columns, count, n0, n1, n2, n3, n4, n5)                                                        \
  template <bool kF16>                                                                                              \
  struct Wgmma<kF16, columns> {                                                                                     \
    static __forceinline__ void multiply(float (&acc)[count], std::uint64_t a, std::uint64_t b, bool keep) {        \
      if constexpr (kF16)                                                                                           \
        ONCHIP_WGMMA_SHARED(columns, count, "f16", n0, n1, n2);                                                     \
      else                                                                                                          \
        ONCHIP_WGMMA_SHARED(columns, count, "bf16", n0, n1, n2);                                                    \
    }                                                                                                               \
    static __forceinline__ void multiply(float (&acc)[count], const std::uint32_t* a, std::uint64_t b, bool keep) { \
      if constexpr (kF16)                                                                                           \
        ONCHIP_WGMMA_REGISTERS(columns, count, "f16", n0, n1, n2, n3, n4, n5);                                      \
      else                                                                                                          \
        ONCHIP_WGMMA_REGISTERS(columns, count, "bf16", n0, n1, n2, n3, n4, n5);                                     \
    }                                                                                                               \
  };

ONCHIP_WGMMA(16, 8, "%8", "%9", "%10", "%11", "%12", "%13")
ONCHIP_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
ONCHIP_WGMMA(48, 24, "%24", "%25", "%26", "%27", "%28", "%29")
ONCHIP_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
ONCHIP_WGMMA(80, 40, "%40", "%41", "%42", "%43", "%44", "%45")
ONCHIP_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52", "%53")
ONCHIP_WGMMA(112, 56, "%56", "%57", "%58", "%59", "%60", "%61")
ONCHIP_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
ONCHIP_WGMMA(144, 72, "%72", "%73", "%74", "%75", "%76", "%77")
ONCHIP_WGMMA(160, 80, "%80", "%81", "%82", "%83", "%84", "%85")
ONCHIP_WGMMA(176, 88, "%88", "%89", "%90", "%91", "%92", "%93")
ONCHIP_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101")
ONCHIP_WGMMA(208, 104, "%104", "%105", "%106", "%107", "%108", "%109")
ONCHIP_WGMMA(224, 112, "%112", "%113", "%114", "%115", "%116", "%117")
ONCHIP_WGMMA(240, 120, "%120", "%121", "%122", "%123", "%124", "%125")
ONCHIP_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")

}  // namespace onchip::cuda
