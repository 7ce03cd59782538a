// GELU (arXiv:1606.08415) by tanh, which is x times a logistic function, and exact, by the normal distribution.
#include "call.h"
#include "simd.h"
#include "threads.h"

using cpu_kernels::Exp;

namespace {

constexpr int64_t kPiece = 8192;
constexpr float kSlope = 1.59576912f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)
constexpr float kDensity = 0.39894228f;                    // 1 / sqrt(2 pi)

struct Tanh {
  static float Share(float x) { return 1.f / (1.f + Exp(-kSlope * (x + kCubic * x * x * x))); }
  static float Value(float x) { return x * Share(x); }
  static float Slope(float x) {
    const float share = Share(x);
    return share + x * share * (1.f - share) * kSlope * (1.f + 3.f * kCubic * x * x);
  }
};

struct Exact {
  // Abramowitz and Stegun 7.1.26, to 1e-7; `bell` is exp(-x^2 / 2).
  static float Share(float x, float bell) {
    const float z = std::fabs(x) * 0.70710678f, t = 1.f / (1.f + 0.3275911f * z);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const float tail = 0.5f * t * p * bell;
    return x < 0 ? tail : 1.f - tail;
  }
  static float Value(float x) { return x * Share(x, Exp(-0.5f * x * x)); }
  static float Slope(float x) {
    const float bell = Exp(-0.5f * x * x);
    return Share(x, bell) + x * kDensity * bell;
  }
};

// In: x. Out: y, of the same shape.
template <class Kind>
void Forward(const cpu_kernels::Call &call) {
  const float *x = call.Floats(0);
  float *y = call.Floats(1);
  cpu_kernels::ParallelRange(call.Size(0), kPiece, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = Kind::Value(x[i]);
  });
}

// In: gradient of y, x. Out: gradient of x.
template <class Kind>
void Backward(const cpu_kernels::Call &call) {
  const float *grad = call.Floats(0), *x = call.Floats(1);
  float *grad_x = call.Floats(2);
  cpu_kernels::ParallelRange(call.Size(1), kPiece, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) grad_x[i] = grad[i] * Kind::Slope(x[i]);
  });
}

}  // namespace

KERNEL(gelu_tanh) { Forward<Tanh>(call); }
KERNEL(gelu_tanh_grad) { Backward<Tanh>(call); }
KERNEL(gelu_exact) { Forward<Exact>(call); }
KERNEL(gelu_exact_grad) { Backward<Exact>(call); }
