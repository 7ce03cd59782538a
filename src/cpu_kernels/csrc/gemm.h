// Matrix products by oneDNN's dnnl_sgemm, from the library that MindSpore has loaded anyway.
#ifndef SRC_CPU_KERNELS_CSRC_GEMM_H_
#define SRC_CPU_KERNELS_CSRC_GEMM_H_

#include <cstdint>

namespace cpu_kernels {

enum class Take { kAsIs, kTransposed };

// C = op(A) op(B) + beta C, in the calling thread; all row-major, with the distance between rows after each.
// op(A) has m rows and k columns, op(B) k rows and n columns.
void Gemm(Take take_a, Take take_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t row_a,
          const float *b, int64_t row_b, float beta, float *c, int64_t row_c);

}  // namespace cpu_kernels

#endif  // SRC_CPU_KERNELS_CSRC_GEMM_H_
