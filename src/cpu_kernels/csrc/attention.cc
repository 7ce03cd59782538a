// softmax(q k^T / sqrt(d)) v for each head: H heads of d values, S tokens that ask, T tokens that answer.
// The weights are not kept for the gradient, but computed again, as they were, from two numbers of each softmax.
#include "call.h"
#include "gemm.h"
#include "scratch.h"
#include "simd.h"
#include "threads.h"

using cpu_kernels::Gemm;
using cpu_kernels::ParallelFor;
using cpu_kernels::Take;

namespace {

struct Heads {
  int64_t images, asking, answering, dim, heads;

  Heads(const cpu_kernels::Call &call, int q, int k, int softmaxes)
      : images(call.Dim(q, 0)),
        asking(call.Dim(q, 1)),
        answering(call.Dim(k, 1)),
        dim(call.Dim(q, 2)),
        heads(call.Dim(softmaxes, 1)) {}

  int64_t size() const { return dim / heads; }
  float scale() const { return 1.f / std::sqrt(static_cast<float>(size())); }
  int64_t Asking(int64_t task) const { return task / heads * asking * dim + task % heads * size(); }
  int64_t Answering(int64_t task) const { return task / heads * answering * dim + task % heads * size(); }
};

struct Softmax {
  float largest, share;  // the largest score, and 1 / the sum of exp((score - largest) * scale)
};

thread_local cpu_kernels::Scratch scratch, scratch_grad;

}  // namespace

// In: q (N, S, H d), k, v (N, T, H d). Out: y (N, S, H d), softmaxes (N, H, S, 2).
KERNEL(attention) {
  const float *q = call.Floats(0), *k = call.Floats(1), *v = call.Floats(2);
  float *y = call.Floats(3);
  auto *softmaxes = reinterpret_cast<Softmax *>(call.Floats(4));
  const Heads heads(call, 0, 1, 4);
  ParallelFor(heads.images * heads.heads, [=](int64_t task) {
    const int64_t asking = heads.Asking(task), answering = heads.Answering(task), count = heads.answering;
    float *weights = scratch.Floats(heads.asking * count);
    Gemm(Take::kAsIs, Take::kTransposed, heads.asking, count, heads.size(), q + asking, heads.dim, k + answering,
         heads.dim, 0, weights, count);
    for (int64_t s = 0; s < heads.asking; ++s) {
      float *row = weights + s * count, largest = row[0], sum = 0, scale = heads.scale();
#pragma omp simd reduction(max : largest)
      for (int64_t t = 0; t < count; ++t) largest = row[t] > largest ? row[t] : largest;
#pragma omp simd reduction(+ : sum)
      for (int64_t t = 0; t < count; ++t) {
        row[t] = cpu_kernels::Exp((row[t] - largest) * scale);
        sum += row[t];
      }
      const float share = 1.f / sum;
      softmaxes[task * heads.asking + s] = {largest, share};
#pragma omp simd
      for (int64_t t = 0; t < count; ++t) row[t] *= share;
    }
    Gemm(Take::kAsIs, Take::kAsIs, heads.asking, heads.size(), count, weights, count, v + answering, heads.dim, 0,
         y + asking, heads.dim);
  });
}

// In: gradient of y, q, k, v, softmaxes. Out: gradients of q, k, v.
KERNEL(attention_grad) {
  const float *grad = call.Floats(0), *q = call.Floats(1), *k = call.Floats(2), *v = call.Floats(3);
  const auto *softmaxes = reinterpret_cast<const Softmax *>(call.Floats(4));
  float *grad_q = call.Floats(5), *grad_k = call.Floats(6), *grad_v = call.Floats(7);
  const Heads heads(call, 1, 2, 4);
  ParallelFor(heads.images * heads.heads, [=](int64_t task) {
    const int64_t asking = heads.Asking(task), answering = heads.Answering(task), count = heads.answering;
    const int64_t size = heads.size(), dim = heads.dim;
    float *weights = scratch.Floats(heads.asking * count), *slopes = scratch_grad.Floats(heads.asking * count);
    Gemm(Take::kAsIs, Take::kTransposed, heads.asking, count, size, q + asking, dim, k + answering, dim, 0,
         weights, count);
    Gemm(Take::kAsIs, Take::kTransposed, heads.asking, count, size, grad + asking, dim, v + answering, dim, 0,
         slopes, count);
    for (int64_t s = 0; s < heads.asking; ++s) {
      float *row = weights + s * count, *slope = slopes + s * count, along = 0;
      const float scale = heads.scale();
      const auto [largest, share] = softmaxes[task * heads.asking + s];
#pragma omp simd reduction(+ : along)
      for (int64_t t = 0; t < count; ++t) {
        row[t] = cpu_kernels::Exp((row[t] - largest) * scale) * share;
        along += row[t] * slope[t];
      }
#pragma omp simd
      for (int64_t t = 0; t < count; ++t) slope[t] = scale * row[t] * (slope[t] - along);
    }
    Gemm(Take::kTransposed, Take::kAsIs, count, size, heads.asking, weights, count, grad + asking, dim, 0,
         grad_v + answering, dim);
    Gemm(Take::kAsIs, Take::kAsIs, heads.asking, size, count, slopes, count, k + answering, dim, 0,
         grad_q + asking, dim);
    Gemm(Take::kTransposed, Take::kAsIs, count, size, heads.asking, slopes, count, q + asking, dim, 0,
         grad_k + answering, dim);
  });
}
