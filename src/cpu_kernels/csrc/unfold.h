// A convolution's shape, and the way between an image and the columns that its filters meet.
#ifndef SRC_CPU_KERNELS_CSRC_UNFOLD_H_
#define SRC_CPU_KERNELS_CSRC_UNFOLD_H_

#include <algorithm>
#include <stdexcept>

#include "call.h"

namespace cpu_kernels {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of a convolution with padding (k - 1) / 2 on all sides, so that the output has ceil(H / s) rows.
struct Shape {
  int64_t images, channels, rows, columns, filters, side, stride, out_rows, out_columns;

  int64_t padding() const { return (side - 1) / 2; }
  int64_t pixels() const { return rows * columns; }
  int64_t out_pixels() const { return out_rows * out_columns; }
  int64_t depth() const { return channels * side * side; }  // of a filter
  bool direct() const { return side == 1 && stride == 1; }

  // Of the input whose gradient is a convolution of the output's gradient, at stride 1.
  Shape Mirrored() const {
    return {images, filters, out_rows, out_columns, channels, side, 1, rows, columns};
  }
};

inline Shape ShapeOf(const cpu_kernels::Call &call, int x, int weight, int y) {
  Shape shape{call.Dim(x, 0),      call.Dim(x, 1), call.Dim(x, 2), call.Dim(x, 3), call.Dim(weight, 0),
              call.Dim(weight, 3), 1,              call.Dim(y, 2), call.Dim(y, 3)};
  while (CeilDiv(shape.rows, shape.stride) != shape.out_rows ||
         CeilDiv(shape.columns, shape.stride) != shape.out_columns) {
    if (++shape.stride > std::max(shape.rows, shape.columns)) {
      throw std::invalid_argument("no stride gives this output");
    }
  }
  return shape;
}

// Writes for each of the depths begin..end-1 the pixels that a filter meets there, for output rows first..last-1.
inline void Unfold(const Shape &s, const float *image, int64_t first, int64_t last, int64_t begin, int64_t end,
                   float *out, int64_t out_row) {
  for (int64_t depth = begin; depth < end; ++depth) {
    const int64_t channel = depth / (s.side * s.side), down = depth / s.side % s.side - s.padding();
    const int64_t right = depth % s.side - s.padding();
    const float *plane = image + channel * s.pixels();
    float *to = out + depth * out_row;
    for (int64_t row = first; row < last; ++row, to += s.out_columns) {
      const int64_t from_row = row * s.stride + down;
      if (from_row < 0 || from_row >= s.rows) {
        std::fill_n(to, s.out_columns, 0.f);
        continue;
      }
      const float *from = plane + from_row * s.columns + right;
      // Columns whose pixel lies inside the image: 0 <= column * stride + right < columns.
      const int64_t left = std::min(s.out_columns, right < 0 ? CeilDiv(-right, s.stride) : 0);
      const int64_t stop = std::max(left, std::min(s.out_columns, CeilDiv(s.columns - right, s.stride)));
      std::fill(to, to + left, 0.f);
      if (s.stride == 1) {
        std::copy(from + left, from + stop, to + left);
      } else {
        for (int64_t column = left; column < stop; ++column) to[column] = from[column * s.stride];
      }
      std::fill(to + stop, to + s.out_columns, 0.f);
    }
  }
}

// The reverse: adds what stands at the depths of channels begin..end-1 to the pixels that it was taken from.
inline void Fold(const Shape &s, const float *in, int64_t in_row, int64_t begin, int64_t end, float *image) {
  for (int64_t channel = begin; channel < end; ++channel) {
    float *plane = image + channel * s.pixels();
    std::fill_n(plane, s.pixels(), 0.f);
    for (int64_t tap = 0; tap < s.side * s.side; ++tap) {
      const int64_t down = tap / s.side - s.padding(), right = tap % s.side - s.padding();
      const float *from = in + ((channel - begin) * s.side * s.side + tap) * in_row;
      for (int64_t row = 0; row < s.out_rows; ++row, from += s.out_columns) {
        const int64_t to_row = row * s.stride + down;
        if (to_row < 0 || to_row >= s.rows) continue;
        float *to = plane + to_row * s.columns + right;
        const int64_t left = std::min(s.out_columns, right < 0 ? CeilDiv(-right, s.stride) : 0);
        const int64_t stop = std::max(left, std::min(s.out_columns, CeilDiv(s.columns - right, s.stride)));
        for (int64_t column = left; column < stop; ++column) to[column * s.stride] += from[column];
      }
    }
  }
}

}  // namespace cpu_kernels

#endif  // SRC_CPU_KERNELS_CSRC_UNFOLD_H_
