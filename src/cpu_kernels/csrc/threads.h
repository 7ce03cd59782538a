// A loop whose rounds are shared between threads that stay alive.
#ifndef SRC_CPU_KERNELS_CSRC_THREADS_H_
#define SRC_CPU_KERNELS_CSRC_THREADS_H_

#include <cstdint>

namespace cpu_kernels {

using Body = void (*)(const void *context, int64_t index);

// Sets the number of threads, the caller's included. What is called later than the first loop has no effect.
void SetThreads(int threads);
int Threads();

// Into how many slices a matrix is cut: two for each thread, for the case that one is slower.
inline int64_t Slices() { return 2 * static_cast<int64_t>(Threads()); }

// Calls body(context, i) for i in 0..count-1, each once, in any order, and returns when all have returned; throws what
// one of them threw, and leaves out others then. While another thread is in such a loop, and inside of one, all rounds
// are the caller's.
void ParallelRun(int64_t count, Body body, const void *context);

// The same for a function object.
template <class Function>
void ParallelFor(int64_t count, const Function &function) {
  ParallelRun(
      count, [](const void *context, int64_t index) { (*static_cast<const Function *>(context))(index); },
      &function);
}

// ParallelFor over pieces of 0..size-1: function(begin, end).
template <class Function>
void ParallelRange(int64_t size, int64_t piece, const Function &function) {
  ParallelFor((size + piece - 1) / piece, [&](int64_t index) {
    const int64_t end = (index + 1) * piece;
    function(index * piece, end < size ? end : size);
  });
}

}  // namespace cpu_kernels

#endif  // SRC_CPU_KERNELS_CSRC_THREADS_H_
