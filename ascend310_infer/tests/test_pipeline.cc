#include "pipeline.h"

#include <chrono>
#include <string>
#include <thread>

#include "check.h"

namespace fs = std::filesystem;

namespace {

constexpr size_t kImageSize = 3;

// Two logits an image: the sum of its three values, and how many calls came before.
class FakeModel : public infer::BatchModel {
 public:
  explicit FakeModel(size_t batch) : batch_(batch) {}

  size_t batch() const override { return batch_; }
  size_t image_size() const override { return kImageSize; }
  std::vector<float> Run(const std::vector<float>& images) override {
    if (calls == fail_at_call) {
      throw infer::Error("the device is gone");
    }
    inputs.push_back(images);
    std::vector<float> logits;
    for (size_t i = 0; i < batch_; ++i) {
      logits.push_back(images[3 * i] + images[3 * i + 1] + images[3 * i + 2]);
      logits.push_back(static_cast<float>(calls));
    }
    ++calls;
    return logits;
  }

  int calls = 0;
  int fail_at_call = -1;
  std::vector<std::vector<float>> inputs;

 private:
  const size_t batch_;
};

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// A run over `count` images whose values are 100 i, 10 and 1, in two folders by turns.
struct Run {
  Run(size_t batch, size_t count) : model(batch) {
    for (size_t i = 0; i < count; ++i) {
      names.push_back(fs::path(i % 2 == 0 ? "even" : "odd") / (std::to_string(i) + ".bin"));
      PutFile(folder / "in" / names.back(), Bytes({100.0F * static_cast<float>(i), 10.0F, 1.0F}));
    }
  }

  infer::Outcome operator()() {
    return infer::RunPipeline(model, names, folder / "in", folder / "out", stop,
                              [&](size_t done, double) { progress.push_back(done); });
  }

  size_t Results() const {
    size_t files = 0;
    if (fs::exists(folder / "out")) {
      for (const auto& entry : fs::recursive_directory_iterator(folder / "out")) {
        files += entry.is_regular_file() ? 1 : 0;
      }
    }
    return files;
  }

  TemporaryFolder folder;
  FakeModel model;
  std::vector<fs::path> names;
  std::vector<size_t> progress;
  std::function<bool()> stop = [] { return false; };
};

void EveryImageGetsItsOwnResult() {
  for (const size_t batch : {1, 4, 7, 8}) {
    Run run(batch, 7);
    const auto outcome = run();
    CHECK(outcome.images == 7);
    CHECK(outcome.latencies_ms.size() == (7 + batch - 1) / batch);
    CHECK(outcome.seconds > 0);
    CHECK(run.Results() == 7);
    for (size_t i = 0; i < 7; ++i) {
      const std::vector<float> logits = {100.0F * static_cast<float>(i) + 11, static_cast<float>(i / batch)};
      CHECK(ReadFile(run.folder / "out" / run.names[i]) == Bytes(logits));
    }
  }
}

void TheLastBatchIsFilledUpWithZeros() {
  Run run(4, 5);
  run();
  CHECK((run.model.inputs.at(1) == std::vector<float>{400, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

void ProgressCountsImagesNotPadding() {
  Run run(4, 6);
  run();
  CHECK((run.progress == std::vector<size_t>{4, 6}));
}

void AWrongImageEndsTheRunAfterTheBatchesBeforeIt() {
  Run run(2, 9);
  PutFile(run.folder / "in" / run.names[5], "short");
  CHECK_FAILS(run(), "odd/5.bin holds 5 bytes");
  CHECK(run.Results() == 4);
}

void AFailingDeviceEndsTheRunWithWhatIsDone() {
  Run run(2, 40);
  run.model.fail_at_call = 3;
  CHECK_FAILS(run(), "the device is gone");
  CHECK(run.Results() == 6);
}

void AResultThatCannotBeWrittenEndsTheRun() {
  Run run(1, 40);
  PutFile(run.folder / "out/odd", "a file where a folder should be");
  CHECK_FAILS(run(), "cannot make the folder " + (run.folder / "out/odd").string());
  CHECK(run.model.calls < 40);
}

void StoppingKeepsWhatIsDone() {
  Run run(2, 40);
  run.stop = [&] { return run.model.calls == 3; };
  CHECK(run().images == 6);
  CHECK(run.Results() == 6);
}

void ReadingGoesOnWhileTheDeviceWorks() {
  Run run(1, 3);
  bool removed = false;
  run.stop = [&] {  // before the first batch: the reader must come to all three by itself
    if (!removed) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      fs::remove_all(run.folder / "in");
      removed = true;
    }
    return false;
  };
  CHECK(run().images == 3);
}

}  // namespace

int main() {
  EveryImageGetsItsOwnResult();
  TheLastBatchIsFilledUpWithZeros();
  ProgressCountsImagesNotPadding();
  AWrongImageEndsTheRunAfterTheBatchesBeforeIt();
  AFailingDeviceEndsTheRunWithWhatIsDone();
  AResultThatCannotBeWrittenEndsTheRun();
  StoppingKeepsWhatIsDone();
  ReadingGoesOnWhileTheDeviceWorks();
  return failures == 0 ? 0 : 1;
}
