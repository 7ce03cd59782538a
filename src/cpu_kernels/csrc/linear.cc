// y = x W^T + b over the last axis: I inputs, O outputs, M rows.
#include <algorithm>

#include "call.h"
#include "gemm.h"
#include "threads.h"

using cpu_kernels::Gemm;
using cpu_kernels::ParallelFor;
using cpu_kernels::Take;

namespace {

// So many slices of a matrix that each thread has two, for the case that one is slower.
int64_t Slices() { return 2 * cpu_kernels::Threads(); }

}  // namespace

// In: x (..., I), weight (O, I), bias (O). Out: y (..., O).
KERNEL(linear) {
  const float *x = call.Floats(0), *weight = call.Floats(1), *bias = call.Floats(2);
  float *y = call.Floats(3);
  const int64_t outputs = call.Dim(1, 0), inputs = call.Dim(1, 1), rows = call.Size(0) / inputs, slices = Slices();
  ParallelFor(slices, [=](int64_t slice) {
    const int64_t begin = outputs * slice / slices, end = outputs * (slice + 1) / slices;
    for (int64_t row = 0; row < rows; ++row) std::copy(bias + begin, bias + end, y + row * outputs + begin);
    Gemm(Take::kAsIs, Take::kTransposed, rows, end - begin, inputs, x, inputs, weight + begin * inputs, inputs, 1,
         y + begin, outputs);
  });
}

// In: gradient of y (..., O), x (..., I), weight (O, I). Out: gradients of x, weight, bias.
KERNEL(linear_grad) {
  const float *grad = call.Floats(0), *x = call.Floats(1), *weight = call.Floats(2);
  float *grad_x = call.Floats(3), *grad_weight = call.Floats(4), *grad_bias = call.Floats(5);
  const int64_t outputs = call.Dim(2, 0), inputs = call.Dim(2, 1), rows = call.Size(1) / inputs, slices = Slices();
  ParallelFor(2 * slices, [=](int64_t task) {
    const int64_t slice = task / 2;
    if (task % 2 == 0) {
      const int64_t begin = inputs * slice / slices, end = inputs * (slice + 1) / slices;
      Gemm(Take::kAsIs, Take::kAsIs, rows, end - begin, outputs, grad, outputs, weight + begin, inputs, 0,
           grad_x + begin, inputs);
      return;
    }
    const int64_t begin = outputs * slice / slices, end = outputs * (slice + 1) / slices;
    Gemm(Take::kTransposed, Take::kAsIs, end - begin, inputs, rows, grad + begin, outputs, x, inputs, 0,
         grad_weight + begin * inputs, inputs);
    std::fill(grad_bias + begin, grad_bias + end, 0.f);
    for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) grad_bias[i] += grad[row * outputs + i];
    }
  });
}
