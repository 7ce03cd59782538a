// LayerNorm over the last axis; D is its size, M the number of rows.
#include <vector>

#include "call.h"
#include "simd.h"
#include "threads.h"

namespace {
constexpr int64_t kRows = 16;   // a task
constexpr int64_t kParts = 16;  // sums over rows are kept in so many parts, whatever the number of threads
}  // namespace

using cpu_kernels::ParallelFor;
using cpu_kernels::ParallelRange;

// In: x (..., D), gamma (D), beta (D), epsilon (1). Out: y (..., D), mean (M), rstd (M).
KERNEL(layer_norm) {
  const float *x = call.Floats(0), *gamma = call.Floats(1), *beta = call.Floats(2), epsilon = *call.Floats(3);
  float *y = call.Floats(4), *mean = call.Floats(5), *rstd = call.Floats(6);
  const int64_t size = call.Dim(0, -1);
  ParallelRange(call.Size(0) / size, kRows, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *in = x + row * size;
      float *out = y + row * size;
      const auto [centre, scale] = cpu_kernels::MomentsOf(in, size, epsilon);
      mean[row] = centre;
      rstd[row] = scale;
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) out[i] = (in[i] - centre) * scale * gamma[i] + beta[i];
    }
  });
}

// In: gradient of y (..., D), x (..., D), gamma (D), mean (M), rstd (M).
// Out: gradients of x (..., D), gamma (D), beta (D).
KERNEL(layer_norm_grad) {
  const float *grad = call.Floats(0), *x = call.Floats(1), *gamma = call.Floats(2);
  const float *mean = call.Floats(3), *rstd = call.Floats(4);
  float *grad_x = call.Floats(5), *grad_gamma = call.Floats(6), *grad_beta = call.Floats(7);
  const int64_t size = call.Dim(1, -1), rows = call.Size(1) / size;
  std::vector<float> sums(2 * kParts * size);
  float *all = sums.data();
  ParallelFor(kParts, [=](int64_t part) {
    float *of_product = all + 2 * part * size, *of_grad = of_product + size;
    for (int64_t row = rows * part / kParts; row < rows * (part + 1) / kParts; ++row) {
      const float *g = grad + row * size, *in = x + row * size, centre = mean[row], scale = rstd[row];
      float *to = grad_x + row * size, shift = 0, along = 0;
#pragma omp simd reduction(+ : shift, along)
      for (int64_t i = 0; i < size; ++i) {
        const float normed = (in[i] - centre) * scale, product = g[i] * normed;
        of_product[i] += product;
        of_grad[i] += g[i];
        shift += g[i] * gamma[i];
        along += product * gamma[i];
      }
      shift /= size;
      along /= size;
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) {
        to[i] = scale * (g[i] * gamma[i] - shift - (in[i] - centre) * scale * along);
      }
    }
  });
  for (int64_t i = 0; i < size; ++i) {
    float product = 0, sum = 0;
    for (int64_t part = 0; part < kParts; ++part) {
      product += all[2 * part * size + i];
      sum += all[(2 * part + 1) * size + i];
    }
    grad_gamma[i] = product;
    grad_beta[i] = sum;
  }
}
