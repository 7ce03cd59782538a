// Inference of a MindIR classifier on Ascend 310, other Ascend devices or a CPU; infer --help tells the rest.
#include <signal.h>  // sigaction
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include "error.h"
#include "model_runner.h"
#include "options.h"
#include "pipeline.h"
#include "progress.h"
#include "statistics.h"
#include "tensor_files.h"

namespace {

constexpr int kInterrupted = 130;

volatile std::sig_atomic_t interrupted = 0;

// The library reads its log level while it is loaded, before main: the program starts itself anew with its lines off.
void QuietLibrary(char** argv) {
  if (std::getenv("GLOG_v") == nullptr) {
    setenv("GLOG_v", "4", 1);
    execv("/proc/self/exe", argv);  // returns only when it fails; the library's lines then show, nothing worse
  }
}

// The first Ctrl-C ends the run after the batch at work, a second one at once.
void StopOnInterrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
}

int Infer(const infer::Options& options) {
  const auto names = infer::FindTensors(options.input_dir);
  infer::CheckApart(options.input_dir, options.output_dir);
  infer::MakeFolder(options.output_dir);
  infer::MakeFolder(options.time_dir);

  infer::ModelRunner model(options.model, options.device, options.device_id, options.threads);
  std::cout << options.model.string() << " on " << options.device << ", input " << model.input_shape() << ": "
            << names.size() << " images" << std::endl;

  infer::Outcome outcome;
  {
    infer::Progress progress(std::cerr, names.size(), isatty(STDERR_FILENO) != 0);
    outcome = infer::RunPipeline(
        model, names, options.input_dir, options.output_dir, [] { return interrupted != 0; },
        [&](size_t done, double seconds) {
          if (options.progress) {
            progress.Show(done, seconds);
          }
        });
  }
  if (outcome.images < names.size()) {
    std::cerr << "interrupted: " << outcome.images << " of " << names.size() << " images have their result"
              << std::endl;
    return kInterrupted;
  }
  const std::string line = infer::PerformanceLine(outcome.latencies_ms);
  std::cout << infer::Summary(outcome.images, outcome.seconds, model.batch(), outcome.latencies_ms) << "\n"
            << line << std::endl;
  infer::WriteFile(options.time_dir / "test_perform_static.txt", line + "\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  QuietLibrary(argv);
  StopOnInterrupt();
  try {
    const auto options = infer::ParseOptions({argv + 1, argv + argc});
    if (options.help) {
      std::cout << infer::HelpText();
      return 0;
    }
    return Infer(options);
  } catch (const std::exception& fault) {
    std::string line = fault.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    std::cerr << "error: " << line << std::endl;
    return 1;
  }
}
