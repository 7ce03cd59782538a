// One pixel of zeros around the image, then the maximum of 3x3 pixels at every second.
#include <algorithm>
#include <limits>

#include "call.h"
#include "threads.h"

using cpu_kernels::ParallelFor;

namespace {

constexpr int64_t kColumns = 64;  // of a piece
constexpr int8_t kPadding = -1;  // the place of a maximum that is the zero around the image

struct Planes {
  int64_t count, rows, columns, out_rows, out_columns;

  Planes(const cpu_kernels::Call &call, int x, int y)
      : count(call.Dim(x, 0) * call.Dim(x, 1)),
        rows(call.Dim(x, 2)),
        columns(call.Dim(x, 3)),
        out_rows(call.Dim(y, 2)),
        out_columns(call.Dim(y, 3)) {}
};

// The maxima of columns begin..begin+count-1 of an output row.
void PoolPiece(const Planes &planes, const float *in, int64_t row, int64_t begin, int64_t count, float *y,
               int8_t *places) {
  float best[kColumns];
  int32_t place[kColumns];
  const bool rows_inside = row > 0 && 2 * row + 2 <= planes.rows;
  for (int64_t i = 0; i < kColumns; ++i) {
    const bool inside = rows_inside && begin + i > 0 && 2 * (begin + i) + 2 <= planes.columns;
    best[i] = inside ? -std::numeric_limits<float>::infinity() : 0.f;
    place[i] = inside ? 0 : kPadding;
  }
  for (int32_t tap = 0; tap < 9; ++tap) {
    const int64_t from_row = 2 * row - 1 + tap / 3, shift = 2 * begin + tap % 3 - 1;
    if (from_row < 0 || from_row >= planes.rows) continue;
    const float *from = in + from_row * planes.columns + shift;
    const int64_t end = std::min(count, (planes.columns - shift + 1) / 2);
#pragma omp simd
    for (int64_t i = shift < 0 ? 1 : 0; i < end; ++i) {
      const float value = from[2 * i];
      const bool wins = (value > best[i]) | (value != value);  // not-a-number wins, and stays
      best[i] = wins ? value : best[i];
      place[i] = wins ? tap : place[i];
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    y[i] = best[i];
    places[i] = static_cast<int8_t>(place[i]);
  }
}

}  // namespace

// In: x (N, C, H, W). Out: y (N, C, ceil(H / 2), ceil(W / 2)), int8 place of each maximum in its 3x3 pixels.
KERNEL(zero_pad_max_pool) {
  const float *x = call.Floats(0);
  float *y = call.Floats(1);
  int8_t *places = call.Bytes(2);
  const Planes planes(call, 0, 1);
  ParallelFor(planes.count, [=](int64_t plane) {
    const float *in = x + plane * planes.rows * planes.columns;
    int64_t out = plane * planes.out_rows * planes.out_columns;
    for (int64_t row = 0; row < planes.out_rows; ++row, out += planes.out_columns) {
      for (int64_t begin = 0; begin < planes.out_columns; begin += kColumns) {
        const int64_t count = std::min(kColumns, planes.out_columns - begin);
        PoolPiece(planes, in, row, begin, count, y + out + begin, places + out + begin);
      }
    }
  });
}

// In: gradient of y, x (for its shape), places. Out: gradient of x.
KERNEL(zero_pad_max_pool_grad) {
  const float *grad = call.Floats(0);
  const int8_t *places = call.Bytes(2);
  float *grad_x = call.Floats(3);
  const Planes planes(call, 1, 0);
  ParallelFor(planes.count, [=](int64_t plane) {
    float *to = grad_x + plane * planes.rows * planes.columns;
    std::fill_n(to, planes.rows * planes.columns, 0.f);
    int64_t out = plane * planes.out_rows * planes.out_columns;
    for (int64_t row = 0; row < planes.out_rows; ++row) {
      for (int64_t column = 0; column < planes.out_columns; ++column, ++out) {
        const int64_t place = places[out];
        if (place == kPadding) continue;
        to[(2 * row - 1 + place / 3) * planes.columns + 2 * column - 1 + place % 3] += grad[out];
      }
    }
  });
}
