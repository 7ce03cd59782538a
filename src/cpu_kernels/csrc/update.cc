// Optimizer updates in place, and the square sum of a gradient.
#include <cmath>
#include <vector>

#include "call.h"
#include "simd.h"
#include "threads.h"

namespace {
constexpr int64_t kPiece = 16384;
}

using cpu_kernels::ParallelRange;

// In and changed: weight, m, v. In: gradient, all of one shape, and lr, beta1, beta2, epsilon, decay (5).
// m = beta1 m + (1 - beta1) g; v likewise of g^2; w -= lr (m / (sqrt(v) + epsilon) + decay w). Out: unused (1).
KERNEL(adam_weight_decay) {
  float *weight = call.Floats(0), *m = call.Floats(1), *v = call.Floats(2);
  const float *grad = call.Floats(3), *numbers = call.Floats(4);
  const float lr = numbers[0], beta1 = numbers[1], beta2 = numbers[2], epsilon = numbers[3], decay = numbers[4];
  ParallelRange(call.Size(0), kPiece, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      m[i] = beta1 * m[i] + (1.f - beta1) * grad[i];
      v[i] = beta2 * v[i] + (1.f - beta2) * grad[i] * grad[i];
      weight[i] -= lr * (m[i] / (std::sqrt(v[i]) + epsilon) + decay * weight[i]);
    }
  });
  *call.Floats(5) = 0.f;
}

// In and changed: weight, moment. In: gradient, all of one shape, and lr, momentum (2).
// moment = momentum * moment + g; w -= lr * moment. Out: unused (1).
KERNEL(apply_momentum) {
  float *weight = call.Floats(0), *moment = call.Floats(1);
  const float *grad = call.Floats(2), lr = call.Floats(3)[0], momentum = call.Floats(3)[1];
  ParallelRange(call.Size(0), kPiece, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      moment[i] = momentum * moment[i] + grad[i];
      weight[i] -= lr * moment[i];
    }
  });
  *call.Floats(4) = 0.f;
}

// In: x. Out: the sum of its squares (1).
KERNEL(square_sum) {
  const float *x = call.Floats(0);
  const int64_t size = call.Size(0);
  std::vector<double> parts((size + kPiece - 1) / kPiece);
  double *sums = parts.data();
  ParallelRange(size, kPiece, [=](int64_t begin, int64_t end) {
    const float *part = x + begin;
    sums[begin / kPiece] = cpu_kernels::Sum(end - begin, [=](int64_t i) { return part[i] * part[i]; });
  });
  double total = 0;
  for (double part : parts) total += part;
  *call.Floats(1) = static_cast<float>(total);
}
