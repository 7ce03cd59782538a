// Weight standardisation: rows with mean 0, divided by sqrt(biased variance + epsilon).
#include "call.h"
#include "simd.h"
#include "threads.h"

namespace {
constexpr int64_t kRows = 8;  // a task
}

using cpu_kernels::ParallelRange;
using cpu_kernels::Sum;

// In: w (D, K), epsilon (1). Out: y (D, K), rstd (D).
KERNEL(standardise) {
  const float *w = call.Floats(0), epsilon = *call.Floats(1);
  float *y = call.Floats(2), *rstd = call.Floats(3);
  const int64_t size = call.Dim(0, 1);
  ParallelRange(call.Dim(0, 0), kRows, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *in = w + row * size;
      float *out = y + row * size;
      const auto [mean, scale] = cpu_kernels::MomentsOf(in, size, epsilon);
      rstd[row] = scale;
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) out[i] = (in[i] - mean) * scale;
    }
  });
}

// In: gradient of y (D, K), y (D, K), rstd (D). Out: gradient of w (D, K).
KERNEL(standardise_grad) {
  const float *grad = call.Floats(0), *y = call.Floats(1), *rstd = call.Floats(2);
  float *grad_w = call.Floats(3);
  const int64_t size = call.Dim(0, 1);
  ParallelRange(call.Dim(0, 0), kRows, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *g = grad + row * size, *v = y + row * size, scale = rstd[row];
      float *out = grad_w + row * size;
      const float shift = static_cast<float>(Sum(size, [=](int64_t i) { return g[i]; }) / size);
      const float along = static_cast<float>(Sum(size, [=](int64_t i) { return g[i] * v[i]; }) / size);
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) out[i] = scale * (g[i] - shift - v[i] * along);
    }
  });
}
