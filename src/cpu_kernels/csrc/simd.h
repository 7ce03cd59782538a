// Loops over floats that the compiler turns into vector instructions.
#ifndef SRC_CPU_KERNELS_CSRC_SIMD_H_
#define SRC_CPU_KERNELS_CSRC_SIMD_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cpu_kernels {

constexpr int64_t kBlock = 1024;  // floats that are summed in float; sums of blocks are double
constexpr int kLanes = 64;        // sums that a block is kept in: several vectors, since one waits for itself

// The sum of term(i) for i in 0..size-1.
template <class Term>
inline double Sum(int64_t size, Term term) {
  double total = 0;
  int64_t i = 0;
  while (i + kLanes <= size) {
    float lanes[kLanes] = {};
    for (const int64_t end = std::min(size, i + kBlock); i + kLanes <= end; i += kLanes) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    }
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int lane = 0; lane < kLanes; ++lane) part += lanes[lane];
    total += part;
  }
  float rest = 0;
#pragma omp simd reduction(+ : rest)
  for (int64_t j = i; j < size; ++j) rest += term(j);
  return total + rest;
}

struct Moments {
  float mean, rstd;  // rstd is 1 / sqrt(biased variance + epsilon)
};

inline Moments MomentsOf(const float *x, int64_t size, float epsilon) {
  const float mean = static_cast<float>(Sum(size, [=](int64_t i) { return x[i]; }) / size);
  const double squares = Sum(size, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return {mean, static_cast<float>(1 / std::sqrt(squares / size + epsilon))};
}

// e^x to 2e-7 of itself; beyond -+87 that of -+87. By ln 2 in two parts and the polynomial of Cephes' expf.
inline float Exp(float x) {
  x = x > 87.f ? 87.f : x;  // not std::min: not-a-number stays what it is
  x = x < -87.f ? -87.f : x;
  const float power = std::nearbyint(x * 1.44269504f);
  const float r = (x - power * 0.693359375f) + power * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  const int32_t bits = (static_cast<int32_t>(power) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}

}  // namespace cpu_kernels

#endif  // SRC_CPU_KERNELS_CSRC_SIMD_H_
