#include "linear.h"

#include <algorithm>

#include "call.h"
#include "gemm.h"
#include "threads.h"

namespace cpu_kernels {

void Linear(const LinearShape &shape, const float *x, const float *weight, const float *bias, float *y) {
  const auto [rows, inputs, outputs] = shape;
  const int64_t slices = Slices();
  ParallelFor(slices, [=, rows = rows, inputs = inputs, outputs = outputs](int64_t slice) {
    const int64_t begin = outputs * slice / slices, end = outputs * (slice + 1) / slices;
    for (int64_t row = 0; row < rows; ++row) std::copy(bias + begin, bias + end, y + row * outputs + begin);
    Gemm(Take::kAsIs, Take::kTransposed, rows, end - begin, inputs, x, inputs, weight + begin * inputs, inputs, 1,
         y + begin, outputs);
  });
}

void LinearGradSlice(const LinearShape &shape, int64_t slice, const float *grad, const float *x, float *grad_weight,
                     float *grad_bias) {
  const auto [rows, inputs, outputs] = shape;
  const int64_t begin = outputs * slice / Slices(), end = outputs * (slice + 1) / Slices();
  Gemm(Take::kTransposed, Take::kAsIs, end - begin, inputs, rows, grad + begin, outputs, x, inputs, 0,
       grad_weight + begin * inputs, inputs);
  std::fill(grad_bias + begin, grad_bias + end, 0.f);
  for (int64_t row = 0; row < rows; ++row) {
    const float *g = grad + row * outputs;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) grad_bias[i] += g[i];
  }
}

}  // namespace cpu_kernels

using cpu_kernels::LinearShape;

// In: x (..., I), weight (O, I), bias (O). Out: y (..., O).
KERNEL(linear) {
  const LinearShape shape{call.Size(0) / call.Dim(1, 1), call.Dim(1, 1), call.Dim(1, 0)};
  cpu_kernels::Linear(shape, call.Floats(0), call.Floats(1), call.Floats(2), call.Floats(3));
}

// In: gradient of y (..., O), x (..., I), weight (O, I). Out: gradients of x, weight, bias.
KERNEL(linear_grad) {
  const float *grad = call.Floats(0), *x = call.Floats(1), *weight = call.Floats(2);
  float *grad_x = call.Floats(3), *grad_weight = call.Floats(4), *grad_bias = call.Floats(5);
  const LinearShape shape{call.Size(1) / call.Dim(2, 1), call.Dim(2, 1), call.Dim(2, 0)};
  const int64_t slices = cpu_kernels::Slices();
  cpu_kernels::ParallelFor(2 * slices, [=](int64_t task) {
    const int64_t slice = task / 2;
    if (task % 2 == 1) {
      cpu_kernels::LinearGradSlice(shape, slice, grad, x, grad_weight, grad_bias);
      return;
    }
    const int64_t begin = shape.inputs * slice / slices, end = shape.inputs * (slice + 1) / slices;
    cpu_kernels::Gemm(cpu_kernels::Take::kAsIs, cpu_kernels::Take::kAsIs, shape.rows, end - begin, shape.outputs, grad,
                      shape.outputs, weight + begin, shape.inputs, 0, grad_x + begin, shape.inputs);
  });
}
