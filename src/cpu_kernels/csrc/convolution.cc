// Convolutions as matrix products: filters (D, C k k) times unfolded images (C k k, pixels).
//
// Large outputs are computed in tiles of some rows of one image, whose unfolded pixels stay in the cache; small ones of
// several images at once, in slices of the filters.
#include <algorithm>

#include "call.h"
#include "gemm.h"
#include "scratch.h"
#include "threads.h"
#include "unfold.h"

using cpu_kernels::CeilDiv;
using cpu_kernels::Gemm;
using cpu_kernels::ParallelFor;
using cpu_kernels::ParallelRange;
using cpu_kernels::Scratch;
using cpu_kernels::Shape;
using cpu_kernels::Take;

namespace {

constexpr int64_t kLarge = 128;       // output pixels from which an image is cut into tiles
constexpr int64_t kTile = 256;        // pixels of a tile that has to be unfolded
constexpr int64_t kDirectTile = 1024; // pixels of a tile of a 1x1 convolution, which is read where it stands
constexpr int64_t kGradTile = 512;    // pixels of a tile of the filters' gradient
constexpr int64_t kGathered = 512;    // pixels of small images that are gathered into one product
constexpr int64_t kFewTasks = 8;

thread_local Scratch tile_scratch, columns_scratch, rows_scratch, partial_scratch, filter_scratch;

// The pixels of output rows first..last-1 as a matrix (depth, pixels), and the distance between its rows.
struct Columns {
  const float *data;
  int64_t row;

  Columns(const Shape &s, const float *image, int64_t first, int64_t last) {
    if (s.direct()) {
      data = image + first * s.columns;
      row = s.pixels();
    } else {
      row = (last - first) * s.out_columns;
      float *unfolded = tile_scratch.Floats(s.depth() * row);
      Unfold(s, image, first, last, 0, s.depth(), unfolded, row);
      data = unfolded;
    }
  }
};

// How the output rows of an image are cut.
struct Tiles {
  int64_t rows, per_image;

  Tiles(const Shape &s, int64_t pixels) : rows(std::max<int64_t>(1, pixels / s.out_columns)) {
    if (s.images * CeilDiv(s.out_rows, rows) < kFewTasks) rows = std::max<int64_t>(1, s.out_rows / 4);
    per_image = CeilDiv(s.out_rows, rows);
  }
};

// Images first..first+images-1, small ones, side by side: `pixels` is the number of output pixels of all of them.
struct Group {
  int64_t first, images, pixels;

  static int64_t Limit(const Shape &s) { return std::max<int64_t>(1, kGathered / s.out_pixels()); }

  Group(const Shape &s, int64_t first_image)
      : first(first_image), images(std::min(Limit(s), s.images - first)), pixels(images * s.out_pixels()) {}

  // The unfolded pixels, (depth, pixels).
  float *Unfolded(const Shape &s, const float *x) const {
    float *columns = columns_scratch.Floats(s.depth() * pixels);
    constexpr int64_t kParts = 8;
    const Group group = *this;
    ParallelFor(images * kParts, [=](int64_t task) {
      const int64_t image = task / kParts, part = task % kParts;
      Unfold(s, x + (group.first + image) * s.channels * s.pixels(), 0, s.out_rows, s.depth() * part / kParts,
             s.depth() * (part + 1) / kParts, columns + image * s.out_pixels(), group.pixels);
    });
    return columns;
  }

  // What has the shape of the output, (filters, pixels).
  float *Rows(const Shape &s, const float *y) const {
    float *rows = rows_scratch.Floats(s.filters * pixels);
    const Group group = *this;
    ParallelRange(s.filters, 16, [=](int64_t begin, int64_t end) {
      for (int64_t filter = begin; filter < end; ++filter) {
        for (int64_t image = 0; image < group.images; ++image) {
          std::copy_n(y + ((group.first + image) * s.filters + filter) * s.out_pixels(), s.out_pixels(),
                      rows + filter * group.pixels + image * s.out_pixels());
        }
      }
    });
    return rows;
  }
};

void Forward(const Shape &s, const float *x, const float *weight, float *y) {
  if (s.out_pixels() >= kLarge) {
    const Tiles tiles(s, s.direct() ? kDirectTile : kTile);
    ParallelFor(s.images * tiles.per_image, [=](int64_t task) {
      const int64_t image = task / tiles.per_image, first = task % tiles.per_image * tiles.rows;
      const int64_t last = std::min(s.out_rows, first + tiles.rows);
      const Columns columns(s, x + image * s.channels * s.pixels(), first, last);
      Gemm(Take::kAsIs, Take::kAsIs, s.filters, (last - first) * s.out_columns, s.depth(), weight, s.depth(),
           columns.data, columns.row, 0, y + image * s.filters * s.out_pixels() + first * s.out_columns,
           s.out_pixels());
    });
    return;
  }
  const int64_t slices = cpu_kernels::Slices();
  for (int64_t start = 0; start < s.images; start += Group::Limit(s)) {
    const Group group(s, start);
    const float *columns = group.Unfolded(s, x);
    float *products = rows_scratch.Floats(s.filters * group.pixels);
    ParallelFor(slices, [=](int64_t slice) {
      const int64_t begin = s.filters * slice / slices, end = s.filters * (slice + 1) / slices;
      Gemm(Take::kAsIs, Take::kAsIs, end - begin, group.pixels, s.depth(), weight + begin * s.depth(), s.depth(),
           columns, group.pixels, 0, products + begin * group.pixels, group.pixels);
      for (int64_t filter = begin; filter < end; ++filter) {
        for (int64_t image = 0; image < group.images; ++image) {
          std::copy_n(products + filter * group.pixels + image * s.out_pixels(), s.out_pixels(),
                      y + ((group.first + image) * s.filters + filter) * s.out_pixels());
        }
      }
    });
  }
}

// The gradient of the input of a large output at stride 1: a convolution with filters that are turned round.
void TurnedInput(const Shape &s, const float *grad, const float *weight, float *grad_x) {
  const int64_t taps = s.side * s.side;
  float *turned = filter_scratch.Floats(s.filters * s.depth());
  ParallelFor(s.channels, [=](int64_t channel) {
    for (int64_t filter = 0; filter < s.filters; ++filter) {
      const float *from = weight + (filter * s.channels + channel) * taps;
      std::reverse_copy(from, from + taps, turned + (channel * s.filters + filter) * taps);
    }
  });
  Forward(s.Mirrored(), grad, turned, grad_x);
}

// The gradient of the input of a large output at another stride: a part of the channels of an image each.
void FoldedInput(const Shape &s, const float *grad, const float *weight, float *grad_x) {
  const int64_t taps = s.side * s.side, parts = 2 * CeilDiv(cpu_kernels::Threads(), s.images);
  ParallelFor(s.images * parts, [=](int64_t task) {
    const int64_t image = task / parts, part = task % parts;
    const int64_t begin = s.channels * part / parts, end = s.channels * (part + 1) / parts;
    float *columns = tile_scratch.Floats((end - begin) * taps * s.out_pixels());
    Gemm(Take::kTransposed, Take::kAsIs, (end - begin) * taps, s.out_pixels(), s.filters, weight + begin * taps,
         s.depth(), grad + image * s.filters * s.out_pixels(), s.out_pixels(), 0, columns, s.out_pixels());
    Fold(s, columns, s.out_pixels(), begin, end, grad_x + image * s.channels * s.pixels());
  });
}

// The gradient of the filters of a large output. Each part has some tiles, and sums of its own.
void TiledWeight(const Shape &s, const float *grad, const float *x, float *grad_weight) {
  const int64_t size = s.filters * s.depth();
  const Tiles tiles(s, s.direct() ? kDirectTile : kGradTile);
  const int64_t tasks = s.images * tiles.per_image, parts = std::min<int64_t>(tasks, cpu_kernels::Threads());
  float *partial = partial_scratch.Floats((parts - 1) * size);  // of all parts but the first
  ParallelFor(parts, [=](int64_t part) {
    float *sum = part == 0 ? grad_weight : partial + (part - 1) * size;
    const int64_t begin = tasks * part / parts, end = tasks * (part + 1) / parts;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / tiles.per_image, first = task % tiles.per_image * tiles.rows;
      const int64_t last = std::min(s.out_rows, first + tiles.rows);
      const Columns columns(s, x + image * s.channels * s.pixels(), first, last);
      Gemm(Take::kAsIs, Take::kTransposed, s.filters, s.depth(), (last - first) * s.out_columns,
           grad + image * s.filters * s.out_pixels() + first * s.out_columns, s.out_pixels(), columns.data,
           columns.row, task == begin ? 0 : 1, sum, s.depth());
    }
  });
  ParallelRange(size, 4096, [=](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < parts; ++part) {
      const float *other = partial + (part - 1) * size;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) grad_weight[i] += other[i];
    }
  });
}

// One slice of the filters' gradient, of one group.
void SlicedWeight(const Shape &s, const Group &group, const float *rows, const float *columns, int64_t begin,
                  int64_t end, float *grad_weight) {
  Gemm(Take::kAsIs, Take::kTransposed, end - begin, s.depth(), group.pixels, rows + begin * group.pixels,
       group.pixels, columns, group.pixels, group.first == 0 ? 0 : 1, grad_weight + begin * s.depth(), s.depth());
}

// Channels begin..end-1 of the input's gradient, of one group.
void SlicedInput(const Shape &s, const Group &group, const float *rows, const float *weight, int64_t begin,
                 int64_t end, float *grad_x) {
  const int64_t taps = s.side * s.side;
  float *columns = tile_scratch.Floats((end - begin) * taps * group.pixels);
  Gemm(Take::kTransposed, Take::kAsIs, (end - begin) * taps, group.pixels, s.filters, weight + begin * taps,
       s.depth(), rows, group.pixels, 0, columns, group.pixels);
  for (int64_t image = 0; image < group.images; ++image) {
    Fold(s, columns + image * s.out_pixels(), group.pixels, begin, end,
         grad_x + (group.first + image) * s.channels * s.pixels());
  }
}

// Both gradients of small outputs.
void BackwardSmall(const Shape &s, const float *grad, const float *x, const float *weight, float *grad_x,
                   float *grad_weight) {
  const int64_t slices = cpu_kernels::Slices();
  for (int64_t start = 0; start < s.images; start += Group::Limit(s)) {
    const Group group(s, start);
    const float *rows = group.Rows(s, grad), *columns = group.Unfolded(s, x);
    ParallelFor(2 * slices, [=](int64_t task) {
      const int64_t slice = task / 2;
      if (task % 2 == 0) {
        SlicedWeight(s, group, rows, columns, s.filters * slice / slices, s.filters * (slice + 1) / slices,
                     grad_weight);
      } else if (grad_x != nullptr) {
        SlicedInput(s, group, rows, weight, s.channels * slice / slices, s.channels * (slice + 1) / slices, grad_x);
      }
    });
  }
}

// Both gradients, or that of the filters alone where `grad_x` is null.
void Backward(const Shape &s, const float *grad, const float *x, const float *weight, float *grad_x,
              float *grad_weight) {
  if (s.out_pixels() < kLarge) {
    BackwardSmall(s, grad, x, weight, grad_x, grad_weight);
    return;
  }
  TiledWeight(s, grad, x, grad_weight);
  if (grad_x == nullptr) return;
  if (s.stride == 1) {
    TurnedInput(s, grad, weight, grad_x);
  } else {
    FoldedInput(s, grad, weight, grad_x);
  }
}

}  // namespace

// In: x (N, C, H, W), weight (D, C, k, k). Out: y (N, D, ceil(H / s), ceil(W / s)).
KERNEL(convolution) { Forward(ShapeOf(call, 0, 1, 2), call.Floats(0), call.Floats(1), call.Floats(2)); }

// In: gradient of y, x, weight. Out: gradients of x, weight.
KERNEL(convolution_grad) {
  Backward(ShapeOf(call, 1, 2, 0), call.Floats(0), call.Floats(1), call.Floats(2), call.Floats(3), call.Floats(4));
}

// In: gradient of y, x, weight (for its shape). Out: gradient of weight, where x needs none.
KERNEL(convolution_grad_weight) {
  Backward(ShapeOf(call, 1, 2, 0), call.Floats(0), call.Floats(1), call.Floats(2), nullptr, call.Floats(3));
}
