#include "pipeline.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <string_view>

#include "bounded_queue.h"
#include "tensor_files.h"

namespace infer {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBatchesAhead = 3;

struct Batch {
  size_t first;               // index of the first image
  size_t images;              // without padding
  std::vector<float> values;  // pixels or logits, with padding
};

using Queue = BoundedQueue<Batch>;
using Clock = std::chrono::steady_clock;

void ReadAll(const BatchModel& model, const std::vector<fs::path>& names, const fs::path& folder, Queue& pixels) {
  const Closing<Batch> close(pixels);
  for (size_t first = 0; first < names.size(); first += model.batch()) {
    const size_t images = std::min(model.batch(), names.size() - first);
    Batch batch{first, images, std::vector<float>(model.batch() * model.image_size())};
    for (size_t i = 0; i < images; ++i) {
      ReadTensor(folder / names[first + i], &batch.values[i * model.image_size()], model.image_size());
    }
    if (!pixels.Push(std::move(batch))) {
      return;
    }
  }
}

size_t WriteAll(size_t batch_size, const std::vector<fs::path>& names, const fs::path& folder, Queue& logits) {
  const Closing<Batch> close(logits);
  size_t written = 0;
  while (const auto batch = logits.Pop()) {
    const std::string_view bytes(reinterpret_cast<const char*>(batch->values.data()),
                                 batch->values.size() * sizeof(float));
    const size_t size = bytes.size() / batch_size;
    for (size_t i = 0; i < batch->images; ++i, ++written) {
      WriteFile(folder / names[batch->first + i], bytes.substr(i * size, size));
    }
  }
  return written;
}

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Outcome RunPipeline(BatchModel& model, const std::vector<fs::path>& names, const fs::path& input_dir,
                    const fs::path& output_dir, const std::function<bool()>& stop,
                    const std::function<void(size_t, double)>& progress) {
  Outcome outcome;
  Queue pixels(kBatchesAhead);
  Queue logits(kBatchesAhead);
  const auto start = Clock::now();
  auto reader = std::async(std::launch::async, [&] { ReadAll(model, names, input_dir, pixels); });
  auto writer = std::async(std::launch::async, [&] { return WriteAll(model.batch(), names, output_dir, logits); });
  {
    const Closing<Batch> close_pixels(pixels);  // frees both threads, whatever happens here
    const Closing<Batch> close_logits(logits);
    while (!stop()) {
      auto batch = pixels.Pop();
      if (!batch) {
        break;
      }
      const auto begin = Clock::now();
      auto values = model.Run(batch->values);
      outcome.latencies_ms.push_back(1000 * SecondsSince(begin));
      progress(batch->first + batch->images, SecondsSince(start));
      if (!logits.Push({batch->first, batch->images, std::move(values)})) {
        break;
      }
    }
  }
  outcome.images = writer.get();
  reader.get();
  outcome.seconds = SecondsSince(start);
  return outcome;
}

}  // namespace infer
