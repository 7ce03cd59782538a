#include "call.h"

#include <cstdio>

namespace cpu_kernels {

int Guarded(const char *name, void (*kernel)(const Call &), const Call &call) {
  try {
    kernel(call);
    return 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "compiled kernel %s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace cpu_kernels
