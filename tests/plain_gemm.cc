// dnnl_sgemm in three loops, for tests/race.cc: oneDNN's own is not made for the thread sanitizer.
#include <cstdint>

extern "C" int dnnl_sgemm(char take_a, char take_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                          int64_t row_a, const float *b, int64_t row_b, float beta, float *c, int64_t row_c) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += (take_a == 'N' ? a[i * row_a + l] : a[l * row_a + i]) *
               (take_b == 'N' ? b[l * row_b + j] : b[j * row_b + l]);
      }
      c[i * row_c + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * row_c + j]);
    }
  }
  return 0;
}
