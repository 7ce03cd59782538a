// Pillow's resize of 8-bit RGB, to the bit.
//
// As its Resample.c: filter along the rows, round to 8 bits, filter along the columns; the weights are integers of
// 22 bits. That code takes one value at a time, this one eight.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "call.h"
#include "scratch.h"

#if defined(__clang__)
#pragma clang fp contract(off)
#define ROUNDS_EACH_TIME __attribute__((noinline))
#else
#define ROUNDS_EACH_TIME __attribute__((noinline, optimize("fp-contract=off")))
#endif

namespace {

constexpr int kBits = 22;
constexpr int kStored = 4;  // bytes of a pixel in Pillow's memory: red, green, blue, unused
constexpr int kPair = 2;    // pixels that are filtered at once

typedef int32_t Sums __attribute__((vector_size(kPair * kStored * sizeof(int32_t))));
typedef int32_t PixelSums __attribute__((vector_size(kStored * sizeof(int32_t))));

ROUNDS_EACH_TIME double Bilinear(double x) {
  x = std::fabs(x);
  return x < 1 ? 1 - x : 0;
}

ROUNDS_EACH_TIME double Bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

struct Filter {
  double (*weight)(double);
  double support;
};

constexpr Filter kFilters[] = {{Bilinear, 1}, {Bicubic, 2}};

// The weights of one axis: output i is the sum of the inputs first[i], first[i] + 1, ... with weights of a row.
struct Axis {
  std::vector<int> first, count;
  std::vector<int32_t> weights;
  int width;  // of a row; even, and the rest of a row is zeros

  ROUNDS_EACH_TIME Axis(const Filter &filter, int inputs, float begin, float end, int outputs)
      : first(outputs), count(outputs) {
    const double scale = static_cast<double>(end - begin) / outputs, stretch = std::max(scale, 1.0);
    const double support = filter.support * stretch, inverse = 1 / stretch;
    width = static_cast<int>(std::ceil(support)) * 2 + 2;
    weights.assign(static_cast<size_t>(width) * outputs, 0);
    std::vector<double> row(width);
    for (int i = 0; i < outputs; ++i) {
      const double centre = begin + (i + 0.5) * scale;
      first[i] = std::max(static_cast<int>(centre - support + 0.5), 0);
      count[i] = std::min(static_cast<int>(centre + support + 0.5), inputs) - first[i];
      double sum = 0;
      for (int j = 0; j < count[i]; ++j) {
        row[j] = filter.weight((j + first[i] - centre + 0.5) * inverse);
        sum += row[j];
      }
      for (int j = 0; j < count[i]; ++j) {
        const double scaled = (sum == 0 ? row[j] : row[j] / sum) * (1 << kBits);
        weights[static_cast<size_t>(i) * width + j] = static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
      }
    }
  }

  const int32_t *Row(int output) const { return weights.data() + static_cast<size_t>(output) * width; }
  int End() const { return first.back() + count.back(); }
};

inline Sums Widened(const uint8_t *place) {
#if defined(__AVX2__)  // GCC takes the vector apart
  return reinterpret_cast<Sums>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(place))));
#else
  Sums sums;
  for (int i = 0; i < kPair * kStored; ++i) sums[i] = place[i];
  return sums;
#endif
}

// Writes the sums, shifted back and cut off at 0 and 255, as bytes.
template <class Vector>
inline void Round(Vector sums, uint8_t *to) {
  sums >>= kBits;
  sums = sums < 0 ? Vector{} : sums;
  sums = sums > 255 ? Vector{} + 255 : sums;
  constexpr int kValues = sizeof(Vector) / sizeof(int32_t);
#if defined(__clang__) || __GNUC__ >= 9
  typedef uint8_t Bytes __attribute__((vector_size(kValues)));
  const Bytes bytes = __builtin_convertvector(sums, Bytes);
  std::memcpy(to, &bytes, sizeof(bytes));
#else
  for (int i = 0; i < kValues; ++i) to[i] = static_cast<uint8_t>(sums[i]);
#endif
}

// The weights of two pixels each, as vectors; of an odd number the last is in the upper half of a vector that
// begins one pixel earlier, so that nothing behind a row is read.
struct Pairs {
  std::vector<Sums> weights;
  std::vector<int> place;   // first pixel of each pair
  std::vector<int> begins;  // of each output, in those two

  explicit Pairs(const Axis &axis) {
    for (size_t i = 0; i < axis.first.size(); ++i) {
      begins.push_back(static_cast<int>(place.size()));
      const int32_t *row = axis.Row(static_cast<int>(i));
      for (int j = 0; j < axis.count[i]; j += kPair) {
        const bool alone = j + 1 == axis.count[i], late = alone && axis.first[i] + j > 0;
        const int32_t lower = late ? 0 : row[j], upper = late ? row[j] : alone ? 0 : row[j + 1];
        place.push_back(axis.first[i] + j - (late ? 1 : 0));
        weights.push_back(Sums{lower, lower, lower, lower, upper, upper, upper, upper});
      }
    }
    begins.push_back(static_cast<int>(place.size()));
  }
};

// Filters `kRows` rows, which may be the same, to `columns` pixels each.
constexpr int kRows = 4;

void FilterRows(const Pairs &pairs, int columns, const uint8_t *const *from, uint8_t *const *to) {
  for (int column = 0; column < columns; ++column) {
    Sums sums[kRows] = {};
    for (int pair = pairs.begins[column]; pair < pairs.begins[column + 1]; ++pair) {
      const Sums weights = pairs.weights[pair];
      const int place = pairs.place[pair] * kStored;
      for (int row = 0; row < kRows; ++row) sums[row] += Widened(from[row] + place) * weights;
    }
    for (int row = 0; row < kRows; ++row) {
      PixelSums halves[kPair];
      std::memcpy(halves, &sums[row], sizeof(halves));
      Round(halves[0] + halves[1] + (1 << (kBits - 1)), to[row] + column * kStored);
    }
  }
}

// One row of the result, (columns, 3), out of `count` rows of `columns` pixels, the first at `from`.
void FilterColumns(const int32_t *weights, int count, const uint8_t *from, int columns, uint8_t *to) {
  constexpr int kChunks = 4;  // sums that do not wait for each other
  const size_t row_bytes = static_cast<size_t>(columns) * kStored;
  const int step = kPair * kChunks;
  for (int column = 0; column < columns; column += step) {
    Sums sums[kChunks];
    for (int chunk = 0; chunk < kChunks; ++chunk) sums[chunk] = Sums{} + (1 << (kBits - 1));
    for (int tap = 0; tap < count; ++tap) {
      const uint8_t *row = from + tap * row_bytes + static_cast<size_t>(column) * kStored;
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        sums[chunk] += Widened(row + chunk * kPair * kStored) * weights[tap];
      }
    }
    uint8_t pixels[kStored * kPair * kChunks];
    for (int chunk = 0; chunk < kChunks; ++chunk) Round(sums[chunk], pixels + chunk * kPair * kStored);
    const int end = std::min(step, columns - column);
    for (int i = 0; i < end; ++i) std::memcpy(to + 3 * (column + i), pixels + kStored * i, 3);
  }
}

thread_local cpu_kernels::Scratch narrow_scratch;

}  // namespace

// Resizes a part of an image of at least two columns.
//   image: (height, width) pixels as Pillow keeps them; part: its left, top, right and bottom.
//   filter: 0 bilinear, 1 bicubic; result: (out_height, out_width, 3).
// Returns 0, or 1 when memory ran out.
extern "C" EXPORTED int resample(const uint8_t *image, int height, int width, const float *part, int filter,
                                 int out_height, int out_width, uint8_t *result) {
  try {
    const Axis across(kFilters[filter], width, part[0], part[2], out_width);
    const Axis down(kFilters[filter], height, part[1], part[3], out_height);
    const Pairs pairs(across);
    const int top = down.first.front(), count = down.End() - top;
    const size_t row_bytes = static_cast<size_t>(out_width) * kStored;
    constexpr int kBehind = 64;  // bytes that FilterColumns reads too far at most
    const int64_t bytes = static_cast<int64_t>(count) * row_bytes + kBehind;
    auto *narrow = reinterpret_cast<uint8_t *>(narrow_scratch.Floats(bytes / sizeof(float) + 1));
    for (int row = 0; row < count; row += kRows) {
      const uint8_t *from[kRows];
      uint8_t *to[kRows];
      for (int i = 0; i < kRows; ++i) {
        const size_t place = std::min(row + i, count - 1);
        from[i] = image + (top + place) * width * kStored;
        to[i] = narrow + place * row_bytes;
      }
      FilterRows(pairs, out_width, from, to);
    }
    for (int row = 0; row < out_height; ++row) {
      const uint8_t *from = narrow + static_cast<size_t>(down.first[row] - top) * row_bytes;
      FilterColumns(down.Row(row), down.count[row], from, out_width, result + 3 * static_cast<size_t>(row) * out_width);
    }
    return 0;
  } catch (const std::exception &) {
    return 1;
  }
}
