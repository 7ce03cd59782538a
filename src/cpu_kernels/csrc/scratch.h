// Memory of a thread that is kept for the next call.
#ifndef SRC_CPU_KERNELS_CSRC_SCRATCH_H_
#define SRC_CPU_KERNELS_CSRC_SCRATCH_H_

#include <cstdint>
#include <cstdlib>
#include <new>

namespace cpu_kernels {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch() { std::free(data_); }

  // Room for `size` floats, aligned to 64 bytes; what was there is lost.
  float *Floats(int64_t size) {
    if (size > size_) {
      std::free(data_);
      size_ = 0;
      data_ = static_cast<float *>(std::aligned_alloc(64, (size * sizeof(float) + 63) / 64 * 64));
      if (data_ == nullptr) throw std::bad_alloc();
      size_ = size;
    }
    return data_;
  }

 private:
  float *data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace cpu_kernels

#endif  // SRC_CPU_KERNELS_CSRC_SCRATCH_H_
