// GroupNorm and the ReLU after it. A group is C / G channels of one image, together L values.
#include <vector>

#include "call.h"
#include "simd.h"
#include "threads.h"

using cpu_kernels::ParallelFor;
using cpu_kernels::Sum;

namespace {

struct Groups {
  int64_t images, channels, pixels, count, width;  // width: channels of a group

  Groups(const cpu_kernels::Call &call, int x, int statistics)
      : images(call.Dim(x, 0)),
        channels(call.Dim(x, 1)),
        pixels(call.Size(x) / (call.Dim(x, 0) * call.Dim(x, 1))),
        count(call.Size(statistics)),
        width(images * channels / count) {}

  int64_t length() const { return width * pixels; }
};

}  // namespace

// In: x (N, C, H, W), gamma (C), beta (C), epsilon (1). Out: y (N, C, H, W), mean (N * G), rstd (N * G).
KERNEL(group_norm_relu) {
  const float *x = call.Floats(0), *gamma = call.Floats(1), *beta = call.Floats(2), epsilon = *call.Floats(3);
  float *y = call.Floats(4), *mean = call.Floats(5), *rstd = call.Floats(6);
  const Groups groups(call, 0, 5);
  ParallelFor(groups.count, [=](int64_t group) {
    const int64_t start = group * groups.length();
    const auto [centre, scale] = cpu_kernels::MomentsOf(x + start, groups.length(), epsilon);
    mean[group] = centre;
    rstd[group] = scale;
    for (int64_t c = 0; c < groups.width; ++c) {
      const int64_t channel = (group * groups.width + c) % groups.channels;
      const float factor = gamma[channel] * scale, shift = beta[channel];
      const float *in = x + start + c * groups.pixels;
      float *out = y + start + c * groups.pixels;
#pragma omp simd
      for (int64_t i = 0; i < groups.pixels; ++i) {
        const float value = (in[i] - centre) * factor + shift;
        out[i] = value < 0 ? 0 : value;  // not-a-number stays what it is
      }
    }
  });
}

// In: gradient of y, x (N, C, H, W), gamma (C), beta (C), mean (N * G), rstd (N * G).
// Out: gradients of x (N, C, H, W), gamma (C), beta (C).
KERNEL(group_norm_relu_grad) {
  const float *grad = call.Floats(0), *x = call.Floats(1), *gamma = call.Floats(2), *beta = call.Floats(3);
  const float *mean = call.Floats(4), *rstd = call.Floats(5);
  float *grad_x = call.Floats(6), *grad_gamma = call.Floats(7), *grad_beta = call.Floats(8);
  const Groups groups(call, 1, 4);
  std::vector<float> sums(2 * groups.images * groups.channels);  // of each channel of each image
  float *of_grad = sums.data(), *of_product = of_grad + groups.images * groups.channels;
  ParallelFor(groups.count, [=](int64_t group) {
    const float centre = mean[group], scale = rstd[group];
    double shift = 0, along = 0;
    for (int64_t c = 0; c < groups.width; ++c) {
      const int64_t place = group * groups.width + c, channel = place % groups.channels;
      const float factor = gamma[channel] * scale, offset = beta[channel];
      const float *g = grad + place * groups.pixels, *in = x + place * groups.pixels;
      const auto passed = [=](int64_t i) { return (in[i] - centre) * factor + offset > 0 ? g[i] : 0.f; };
      const double sum = Sum(groups.pixels, passed);
      const double product = scale * Sum(groups.pixels, [=](int64_t i) { return passed(i) * (in[i] - centre); });
      of_grad[place] = static_cast<float>(sum);
      of_product[place] = static_cast<float>(product);
      shift += gamma[channel] * sum;
      along += gamma[channel] * product;
    }
    const float constant = static_cast<float>(-scale * shift / groups.length());
    const float slope = static_cast<float>(-scale * scale * along / groups.length());
    for (int64_t c = 0; c < groups.width; ++c) {
      const int64_t place = group * groups.width + c, channel = place % groups.channels;
      const float factor = gamma[channel] * scale, offset = beta[channel];
      const float *g = grad + place * groups.pixels, *in = x + place * groups.pixels;
      float *to = grad_x + place * groups.pixels;
#pragma omp simd
      for (int64_t i = 0; i < groups.pixels; ++i) {
        const float centred = in[i] - centre, passed = centred * factor + offset > 0 ? g[i] : 0.f;
        to[i] = factor * passed + slope * centred + constant;
      }
    }
  });
  for (int64_t channel = 0; channel < groups.channels; ++channel) {
    double product = 0, sum = 0;
    for (int64_t place = channel; place < groups.images * groups.channels; place += groups.channels) {
      product += of_product[place];
      sum += of_grad[place];
    }
    grad_gamma[channel] = static_cast<float>(product);
    grad_beta[channel] = static_cast<float>(sum);
  }
}
