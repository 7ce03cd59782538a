// Patches of p x p pixels, cut out of an image of C channels and projected to D values each.
#include <algorithm>

#include "call.h"
#include "gemm.h"
#include "scratch.h"
#include "threads.h"

using cpu_kernels::Gemm;
using cpu_kernels::ParallelFor;
using cpu_kernels::Take;

namespace {

struct Patches {
  int64_t images, channels, side, rows, columns;  // of patches in an image

  Patches(const cpu_kernels::Call &call, int x, int weight)
      : images(call.Dim(x, 0)),
        channels(call.Dim(x, 1)),
        side(call.Dim(weight, 3)),
        rows(call.Dim(x, 2) / side),
        columns(call.Dim(x, 3) / side) {}

  int64_t count() const { return images * rows * columns; }
  int64_t size() const { return channels * side * side; }

  // A patch a row, in the order of the weights: channel, row, column.
  void Cut(const float *x, float *to) const {
    ParallelFor(images * rows, [=](int64_t index) {
      const int64_t image = index / rows, row = index % rows, width = columns * side;
      for (int64_t column = 0; column < columns; ++column) {
        float *patch = to + (index * columns + column) * size();
        for (int64_t c = 0; c < channels; ++c) {
          const float *in = x + ((image * channels + c) * rows + row) * side * width + column * side;
          for (int64_t r = 0; r < side; ++r, patch += side) std::copy_n(in + r * width, side, patch);
        }
      }
    });
  }
};

thread_local cpu_kernels::Scratch scratch;

}  // namespace

// In: x (N, C, H, W), weight (D, C, p, p), bias (D). Out: y (N, H / p * W / p, D).
KERNEL(patch_linear) {
  const float *x = call.Floats(0), *weight = call.Floats(1), *bias = call.Floats(2);
  float *y = call.Floats(3);
  const Patches patches(call, 0, 1);
  const int64_t dim = call.Dim(1, 0), slices = 2 * cpu_kernels::Threads();
  float *cut = scratch.Floats(patches.count() * patches.size());
  patches.Cut(x, cut);
  ParallelFor(slices, [=](int64_t slice) {
    const int64_t begin = dim * slice / slices, end = dim * (slice + 1) / slices;
    for (int64_t i = 0; i < patches.count(); ++i) std::copy(bias + begin, bias + end, y + i * dim + begin);
    Gemm(Take::kAsIs, Take::kTransposed, patches.count(), end - begin, patches.size(), cut, patches.size(),
         weight + begin * patches.size(), patches.size(), 1, y + begin, dim);
  });
}

// In: gradient of y (N, T, D), x (N, C, H, W), weight (for its shape). Out: gradients of weight, bias.
KERNEL(patch_linear_grad) {
  const float *grad = call.Floats(0), *x = call.Floats(1);
  float *grad_weight = call.Floats(3), *grad_bias = call.Floats(4);
  const Patches patches(call, 1, 2);
  const int64_t dim = call.Dim(2, 0), slices = 2 * cpu_kernels::Threads();
  float *cut = scratch.Floats(patches.count() * patches.size());
  patches.Cut(x, cut);
  ParallelFor(slices, [=](int64_t slice) {
    const int64_t begin = dim * slice / slices, end = dim * (slice + 1) / slices;
    Gemm(Take::kTransposed, Take::kAsIs, end - begin, patches.size(), patches.count(), grad + begin, dim, cut,
         patches.size(), 0, grad_weight + begin * patches.size(), patches.size());
    std::fill(grad_bias + begin, grad_bias + end, 0.f);
    for (int64_t i = 0; i < patches.count(); ++i) {
#pragma omp simd
      for (int64_t d = begin; d < end; ++d) grad_bias[d] += grad[i * dim + d];
    }
  });
}
