#include "gemm.h"

#include <dlfcn.h>

#include <stdexcept>

#include "call.h"
#include "threads.h"

namespace cpu_kernels {
namespace {

// dnnl_status_t dnnl_sgemm(...) of oneDNN's dnnl.h, unchanged from 1.0 to 3.x.
using Sgemm = int (*)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t,
                      float, float *, int64_t);

Sgemm sgemm = nullptr;

char Letter(Take take) { return take == Take::kAsIs ? 'N' : 'T'; }

}  // namespace

void Gemm(Take take_a, Take take_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t row_a, const float *b,
          int64_t row_b, float beta, float *c, int64_t row_c) {
  if (m == 0 || n == 0) return;
  if (sgemm == nullptr || sgemm(Letter(take_a), Letter(take_b), m, n, k, 1.f, a, row_a, b, row_b, beta, c, row_c)) {
    throw std::runtime_error("dnnl_sgemm failed");
  }
}

}  // namespace cpu_kernels

// Must be called once before any kernel: takes dnnl_sgemm from `library` and sets the number of threads.
// Returns 0, or 1 when the library cannot be loaded or has no such function.
extern "C" EXPORTED int cpu_kernels_start(const char *library, int threads) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return 1;
  cpu_kernels::sgemm = reinterpret_cast<cpu_kernels::Sgemm>(dlsym(handle, "dnnl_sgemm"));
  cpu_kernels::SetThreads(threads);
  return cpu_kernels::sgemm == nullptr ? 1 : 0;
}
