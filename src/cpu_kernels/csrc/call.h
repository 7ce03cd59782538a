// What MindSpore hands to a kernel of ops.Custom(func_type="aot"), and the frame that every kernel has.
#ifndef SRC_CPU_KERNELS_CSRC_CALL_H_
#define SRC_CPU_KERNELS_CSRC_CALL_H_

#include <cstdint>
#include <cstring>
#include <exception>

namespace cpu_kernels {

// Inputs, then outputs; all are dense and row-major. MindSpore checks no types, so the accessors do.
class Call {
 public:
  Call(int count, void **data, int *ranks, int64_t **shapes, const char **types)
      : count_(count), data_(data), ranks_(ranks), shapes_(shapes), types_(types) {}

  float *Floats(int index) const { return static_cast<float *>(Data(index, "float32")); }
  int8_t *Bytes(int index) const { return static_cast<int8_t *>(Data(index, "int8")); }

  int Rank(int index) const { return ranks_[Checked(index)]; }
  int64_t Dim(int index, int axis) const {
    const int rank = Rank(index);
    return shapes_[index][axis < 0 ? rank + axis : axis];
  }
  int64_t Size(int index) const {
    int64_t size = 1;
    for (int axis = 0; axis < Rank(index); ++axis) size *= shapes_[index][axis];
    return size;
  }

 private:
  int Checked(int index) const {
    if (index >= count_) throw Misuse();
    return index;
  }
  void *Data(int index, const char *type) const {
    if (std::strcmp(types_[Checked(index)], type) != 0) throw Misuse();
    return data_[index];
  }

  struct Misuse : std::exception {
    const char *what() const noexcept override { return "another number or type of tensors"; }
  };

  int count_;
  void **data_;
  int *ranks_;
  int64_t **shapes_;
  const char **types_;
};

// Runs a kernel; what it throws becomes a return value other than 0, which MindSpore raises as RuntimeError.
int Guarded(const char *name, void (*kernel)(const Call &), const Call &call);

}  // namespace cpu_kernels

#define EXPORTED __attribute__((visibility("default")))

// Begins the definition of a kernel: `KERNEL(name) { ... call.Floats(0) ... }`.
#define KERNEL(name)                                                                               \
  static void name##_kernel(const cpu_kernels::Call &call);                                        \
  extern "C" EXPORTED int name(int count, void **data, int *ranks, int64_t **shapes,               \
                               const char **types, void *, void *) {                               \
    return cpu_kernels::Guarded(#name, name##_kernel, {count, data, ranks, shapes, types});        \
  }                                                                                                \
  static void name##_kernel(const cpu_kernels::Call &call)

#endif  // SRC_CPU_KERNELS_CSRC_CALL_H_
