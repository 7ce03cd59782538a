// y = x W^T + b: I inputs, O outputs, M rows.
#ifndef SRC_CPU_KERNELS_CSRC_LINEAR_H_
#define SRC_CPU_KERNELS_CSRC_LINEAR_H_

#include <cstdint>

namespace cpu_kernels {

struct LinearShape {
  int64_t rows, inputs, outputs;
};

// From x (M, I), weight (O, I), bias (O) to y (M, O).
void Linear(const LinearShape &shape, const float *x, const float *weight, const float *bias, float *y);

// The gradients of weight and bias, of one of `Slices()` slices of the outputs, from that of y (M, O) and x (M, I).
void LinearGradSlice(const LinearShape &shape, int64_t slice, const float *grad, const float *x, float *grad_weight,
                     float *grad_bias);

}  // namespace cpu_kernels

#endif  // SRC_CPU_KERNELS_CSRC_LINEAR_H_
