// Images through a model, batch by batch: one thread reads ahead, one writes behind, the caller's runs the model.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

namespace infer {

// What the pipeline knows of a model.
class BatchModel {
 public:
  virtual ~BatchModel() = default;

  virtual size_t batch() const = 0;       // images a call
  virtual size_t image_size() const = 0;  // float32 values an image

  // Returns the logits of a whole batch, image after image. Throws Error when the device fails.
  virtual std::vector<float> Run(const std::vector<float>& images) = 0;
};

struct Outcome {
  size_t images = 0;  // with a written result
  double seconds = 0;
  std::vector<double> latencies_ms;  // one a call of the model
};

// Reads input_dir/name for every name and writes output_dir/name. The last batch is filled up with zeros, whose
// results are dropped. Throws the first fault of any thread, after the results at hand are written.
//
// stop: asked before every batch; true ends the run early.
// progress: told the number of images through the model and the seconds since the start.
Outcome RunPipeline(BatchModel& model, const std::vector<std::filesystem::path>& names,
                    const std::filesystem::path& input_dir, const std::filesystem::path& output_dir,
                    const std::function<bool()>& stop, const std::function<void(size_t, double)>& progress);

}  // namespace infer
