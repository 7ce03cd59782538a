// A MindIR model on a device: the one owner of the MindSpore objects.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "include/api/context.h"
#include "include/api/model.h"
#include "pipeline.h"

namespace infer {

class ModelRunner : public BatchModel {
 public:
  // Builds the model, which takes seconds. Throws Error when the file is missing or broken, when the device does not
  // work, and unless the model has one float32 input of fixed shape (batch, ...) and one output.
  ModelRunner(const std::filesystem::path& file, const std::string& device, int device_id, int threads);

  size_t batch() const override { return batch_; }
  size_t image_size() const override { return image_size_; }
  std::string input_shape() const;

  // Throws Error when a call fails or the output is not float32.
  std::vector<float> Run(const std::vector<float>& images) override;

 private:
  void Check(const mindspore::Status& status, const std::string& what) const;
  void CheckInput();

  const std::string file_;
  const std::string device_;
  mindspore::Model model_;
  std::vector<mindspore::MSTensor> inputs_;
  size_t batch_ = 0;
  size_t image_size_ = 0;
};

}  // namespace infer
