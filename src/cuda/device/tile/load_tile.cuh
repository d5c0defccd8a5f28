// Loads of a tile of rows from global into shared memory, by all threads of the CTA.
//
// `rows.address(r)` is where row r of the tile begins in global memory; rows from `num_rows` on, and columns from
// `num_columns` on, become zeros and are not read.
#pragma once

#include <cstdint>

#include "cuda/device/ptx/async_copy.cuh"
#include "cuda/device/ptx/thread_index.cuh"
#include "cuda/device/tile/element_conversion.cuh"

namespace onchip::cuda {

/// The shape of a tile in shared memory: kColumns elements of type kElement a row.
template <Element kElement_, int kRows_, int kColumns_, int kRowBytes_, int kThreads_>
struct TileShape {
  static constexpr Element kElement = kElement_;
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kRowBytes = kRowBytes_;
  static constexpr int kThreads = kThreads_;
};

/// Calls body(row, unit) for each of kRows × kUnits places, spread over the threads so that neighbours take
/// neighbouring units.
template <int kRows, int kUnits, int kThreads, typename Body>
__forceinline__ void for_each_unit(Body&& body) {
  constexpr int kTotal = kRows * kUnits;
  constexpr int kSteps = (kTotal + kThreads - 1) / kThreads;
  const int thread = fresh_thread_index();
  if constexpr (kThreads % kUnits == 0 && kTotal % kThreads == 0) {
    const int unit = thread % kUnits;
    const int row = thread / kUnits;
#pragma unroll(4)
    for (int step = 0; step < kSteps; ++step) body(row + step * (kThreads / kUnits), unit);
  } else {
#pragma unroll(kSteps <= 8 ? kSteps : 2)
    for (int step = 0; step < kSteps; ++step) {
      const int place = thread + step * kThreads;
      if (place < kTotal) body(place / kUnits, place % kUnits);
    }
  }
}

/// Starts copies of elements that are stored as they are computed with; rows are moved in pieces of kCopyBytes ≥ 4.
template <typename Shape, int kCopyBytes, typename Rows>
__forceinline__ void copy_tile_async(std::uint32_t shared, const Rows& rows, int num_rows, int num_columns) {
  constexpr int kPerUnit = kCopyBytes / element_bytes(Shape::kElement);
  constexpr int kUnits = Shape::kColumns / kPerUnit;
  for_each_unit<Shape::kRows, kUnits, Shape::kThreads>([&](int row, int unit) {
    const bool valid = row < num_rows && unit * kPerUnit < num_columns;
    const char* source = rows.address(valid ? row : 0) + unit * kCopyBytes;
    copy_async<kCopyBytes>(shared + row * Shape::kRowBytes + unit * kCopyBytes, source, valid);
  });
}

/// kBytes (1 to 16) bytes of global memory as 32-bit words.
template <int kBytes>
__forceinline__ void load_words(std::uint32_t (&words)[(kBytes + 3) / 4], const char* source) {
  if constexpr (kBytes == 16) {
    const uint4 loaded = __ldg(reinterpret_cast<const uint4*>(source));
    words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
  } else if constexpr (kBytes == 8) {
    const uint2 loaded = __ldg(reinterpret_cast<const uint2*>(source));
    words[0] = loaded.x, words[1] = loaded.y;
  } else if constexpr (kBytes == 4) {
    words[0] = __ldg(reinterpret_cast<const std::uint32_t*>(source));
  } else if constexpr (kBytes == 2) {
    words[0] = __ldg(reinterpret_cast<const std::uint16_t*>(source));
  } else {
    words[0] = __ldg(reinterpret_cast<const std::uint8_t*>(source));
  }
}

/// Loads a tile of kStored elements through registers, converting to the tile's type. Serves narrow types, and rows
/// that are not aligned to 4 bytes. The data is there after the next barrier.
template <typename Shape, Element kStored, int kCopyBytes, typename Rows>
__forceinline__ void load_tile_converting(char* shared, const Rows& rows, int num_rows, int num_columns) {
  constexpr int kPerUnit = kCopyBytes / element_bytes(kStored);
  constexpr int kUnits = Shape::kColumns / kPerUnit;
  constexpr int kStoredBits = element_bytes(kStored) * 8;
  for_each_unit<Shape::kRows, kUnits, Shape::kThreads>([&](int row, int unit) {
    std::uint32_t words[(kCopyBytes + 3) / 4] = {};
    if (row < num_rows && unit * kPerUnit < num_columns)
      load_words<kCopyBytes>(words, rows.address(row) + unit * kCopyBytes);
    const auto value = [&](int e) { return to_float<kStored>(words[e * kStoredBits / 32] >> (e * kStoredBits % 32)); };
    char* target = shared + row * Shape::kRowBytes + unit * kPerUnit * element_bytes(Shape::kElement);
    if constexpr (Shape::kElement == Element::f32) {
#pragma unroll
      for (int e = 0; e < kPerUnit; ++e) reinterpret_cast<float*>(target)[e] = value(e);
    } else if constexpr (kPerUnit == 1) {
      *reinterpret_cast<std::uint16_t*>(target) = static_cast<std::uint16_t>(pack<Shape::kElement>(value(0), 0.0f));
    } else {
#pragma unroll
      for (int e = 0; e < kPerUnit; e += 2)
        reinterpret_cast<std::uint32_t*>(target)[e / 2] = pack<Shape::kElement>(value(e), value(e + 1));
    }
  });
}

/// Converts 16 elements of 8 bits one by one, where one is not finite: small code, which rarely runs.
template <Element kStored, Element kElement>
__forceinline__ void convert_slowly(char* target, const char* source) {
#pragma unroll 1
  for (int e = 0; e < 16; ++e)
    store_element<kElement>(target, e, to_float<kStored>(reinterpret_cast<const std::uint8_t*>(source)[e]));
}

/// Converts a tile of 8-bit elements in shared memory, 16 of a row at a time.
template <typename Stored, typename Shape>
__forceinline__ void convert_tile(char* target, const char* source) {
  constexpr Element kFrom = Stored::kElement, kTo = Shape::kElement;
  static_assert(element_bytes(kFrom) == 1 && Stored::kRows == Shape::kRows && Stored::kColumns == Shape::kColumns);
  for_each_unit<Shape::kRows, Shape::kColumns / 16, Shape::kThreads>([&](int row, int unit) {
    const char* from = source + row * Stored::kRowBytes + unit * 16;
    char* to = target + row * Shape::kRowBytes + unit * 16 * element_bytes(kTo);
    const uint4 loaded = *reinterpret_cast<const uint4*>(from);
    if constexpr (kTo == Element::f32) {
      const std::uint32_t words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        reinterpret_cast<float4*>(to)[i] = {to_float<kFrom>(words[i]), to_float<kFrom>(words[i] >> 8),
                                            to_float<kFrom>(words[i] >> 16), to_float<kFrom>(words[i] >> 24)};
    } else if (any_not_finite<kFrom>(loaded)) {
      convert_slowly<kFrom, kTo>(to, from);
    } else {
      reinterpret_cast<uint4*>(to)[0] = {
          convert_two<kFrom, kTo, false>(loaded.x), convert_two<kFrom, kTo, true>(loaded.x),
          convert_two<kFrom, kTo, false>(loaded.y), convert_two<kFrom, kTo, true>(loaded.y)};
      reinterpret_cast<uint4*>(to)[1] = {
          convert_two<kFrom, kTo, false>(loaded.z), convert_two<kFrom, kTo, true>(loaded.z),
          convert_two<kFrom, kTo, false>(loaded.w), convert_two<kFrom, kTo, true>(loaded.w)};
    }
  });
}

/// The way that fits: asynchronous where elements need no conversion and rows are aligned.
template <typename Shape, Element kStored, int kCopyBytes, typename Rows>
__forceinline__ void load_tile(char* shared, const Rows& rows, int num_rows, int num_columns) {
  if constexpr (kStored == Shape::kElement && kCopyBytes >= 4)
    copy_tile_async<Shape, kCopyBytes>(shared_address(shared), rows, num_rows, num_columns);
  else
    load_tile_converting<Shape, kStored, kCopyBytes>(shared, rows, num_rows, num_columns);
}

}  // namespace onchip::cuda
