#include "model_runner.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "error.h"

namespace infer {
namespace {

using mindspore::DataType;

std::shared_ptr<mindspore::Context> MakeContext(const std::string& device, int device_id, int threads) {
  auto context = std::make_shared<mindspore::Context>();
  context->SetThreadNum(threads);
  if (device == "CPU") {
    context->MutableDeviceInfo().push_back(std::make_shared<mindspore::CPUDeviceInfo>());
  } else {
    auto ascend = std::make_shared<mindspore::AscendDeviceInfo>();
    ascend->SetDeviceID(static_cast<uint32_t>(device_id));
    context->MutableDeviceInfo().push_back(ascend);
  }
  return context;
}

std::string TypeName(DataType type) {
  switch (type) {
    case DataType::kNumberTypeFloat16:
      return "float16";
    case DataType::kNumberTypeFloat32:
      return "float32";
    case DataType::kNumberTypeFloat64:
      return "float64";
    default:
      return "type " + std::to_string(static_cast<int>(type)) + " of data_type.h";
  }
}

}  // namespace

ModelRunner::ModelRunner(const std::filesystem::path& file, const std::string& device, int device_id, int threads)
    : file_(file.string()), device_(device) {
  if (!std::filesystem::is_regular_file(file) || !std::ifstream(file)) {
    throw Error("--model " + file_ + " is no readable file; export.py writes one");
  }
  Check(model_.Build(file_, mindspore::kMindIR, MakeContext(device, device_id, threads)),
        "cannot build the model; is the file whole, of a MindIR version for this library, and the device there?");
  inputs_ = model_.GetInputs();
  CheckInput();
}

void ModelRunner::CheckInput() {
  if (inputs_.size() != 1) {
    throw Error(file_ + " has " + std::to_string(inputs_.size()) + " inputs; wanted is a model with one");
  }
  const auto& input = inputs_.front();
  if (input.DataType() != DataType::kNumberTypeFloat32) {
    throw Error(file_ + " has an input of " + TypeName(input.DataType()) + "; export it with float32");
  }
  const auto& shape = input.Shape();
  if (shape.empty() || std::any_of(shape.begin(), shape.end(), [](int64_t side) { return side < 1; })) {
    throw Error(file_ + " has an input of shape " + input_shape() + "; export it with a fixed shape");
  }
  batch_ = static_cast<size_t>(shape.front());
  image_size_ = static_cast<size_t>(input.ElementNum()) / batch_;
}

std::string ModelRunner::input_shape() const {
  std::ostringstream text;
  const auto& shape = inputs_.front().Shape();
  for (size_t i = 0; i < shape.size(); ++i) {
    text << (i == 0 ? "" : " x ") << shape[i];
  }
  return text.str();
}

std::vector<float> ModelRunner::Run(const std::vector<float>& images) {
  auto& input = inputs_.front();
  void* const memory = input.MutableData();
  if (memory == nullptr || input.DataSize() != images.size() * sizeof(float)) {
    throw Error(file_ + ": the library gives no memory for the input on " + device_);
  }
  std::memcpy(memory, images.data(), input.DataSize());

  std::vector<mindspore::MSTensor> outputs;
  Check(model_.Predict(inputs_, &outputs), "cannot run the model.");
  if (outputs.size() != 1) {
    throw Error(file_ + " has " + std::to_string(outputs.size()) + " outputs; wanted is a model with one, the logits");
  }
  const auto& output = outputs.front();
  if (output.DataType() != DataType::kNumberTypeFloat32) {
    throw Error(file_ + " has an output of " + TypeName(output.DataType()) + "; export it with float32");
  }
  const auto data = output.Data();
  const size_t count = output.DataSize() / sizeof(float);
  if (data == nullptr || count == 0 || count % batch_ != 0) {
    throw Error(file_ + " gives " + std::to_string(count) + " logits for a batch of " + std::to_string(batch_));
  }
  const auto* const values = static_cast<const float*>(data.get());
  return {values, values + count};
}

void ModelRunner::Check(const mindspore::Status& status, const std::string& what) const {
  if (status.IsError()) {
    std::ostringstream text;
    text << file_ << " on " << device_ << ": " << what << " Code 0x" << std::hex << status.StatusCode() << ", "
         << status.ToString() << " GLOG_v=3 in the environment shows what the library says";
    throw Error(text.str());
  }
}

}  // namespace infer
