// From pixels to the network's input.
#include <cstddef>
#include <cstdint>

#include "call.h"

namespace {

// One row: `step` bytes from pixel to pixel, negative from right to left; a plane of floats for each channel.
template <int step>
void NormaliseRow(const uint8_t *from, int columns, const float *mean, const float *std, float *to, int64_t plane) {
  for (int c = 0; c < 3; ++c) {
    const float m = mean[c], s = std[c];
    float *out = to + c * plane;
    const uint8_t *in = from + c;
#pragma omp simd
    for (int x = 0; x < columns; ++x) out[x] = (static_cast<float>(in[static_cast<ptrdiff_t>(x) * step]) - m) / s;
  }
}

}  // namespace

// Writes (pixels - mean) / std of (height, width) pixels of at least three bytes to planes, (3, height, width).
// The strides are in bytes; that of a column is 3 or 4, or negative. Returns 0, or 1 for another stride.
extern "C" EXPORTED int normalise(const uint8_t *pixels, int height, int width, int64_t row_stride, int64_t step,
                                  const float *mean, const float *std, float *planes) {
  const auto row_of = step == 3 ? NormaliseRow<3> : step == 4 ? NormaliseRow<4>
                      : step == -3 ? NormaliseRow<-3> : step == -4 ? NormaliseRow<-4> : nullptr;
  if (row_of == nullptr) return 1;
  const int64_t plane = static_cast<int64_t>(height) * width;
  for (int y = 0; y < height; ++y) {
    row_of(pixels + y * row_stride, width, mean, std, planes + static_cast<int64_t>(y) * width, plane);
  }
  return 0;
}
