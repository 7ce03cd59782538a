// Patches of p x p pixels, cut out of an image of C channels and projected to D values each.
#include <algorithm>

#include "call.h"
#include "linear.h"
#include "scratch.h"
#include "threads.h"

using cpu_kernels::ParallelFor;

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
  const Patches patches(call, 0, 1);
  float *cut = scratch.Floats(patches.count() * patches.size());
  patches.Cut(call.Floats(0), cut);
  cpu_kernels::Linear({patches.count(), patches.size(), call.Dim(1, 0)}, cut, call.Floats(1), call.Floats(2),
                      call.Floats(3));
}

// In: gradient of y (N, T, D), x (N, C, H, W), weight (for its shape). Out: gradients of weight, bias.
KERNEL(patch_linear_grad) {
  const float *grad = call.Floats(0);
  float *grad_weight = call.Floats(3), *grad_bias = call.Floats(4);
  const Patches patches(call, 1, 2);
  const cpu_kernels::LinearShape shape{patches.count(), patches.size(), call.Dim(2, 0)};
  float *cut = scratch.Floats(patches.count() * patches.size());
  patches.Cut(call.Floats(1), cut);
  ParallelFor(cpu_kernels::Slices(), [=](int64_t slice) {
    cpu_kernels::LinearGradSlice(shape, slice, grad, cut, grad_weight, grad_bias);
  });
}
