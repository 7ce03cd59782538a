#include "options.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <thread>

#include "error.h"

namespace infer {
namespace {

int WholeNumber(const std::string& flag, const std::string& text, int lowest, int highest) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || stop != end || number < lowest || number > highest) {
    throw Error(flag + " wants a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest) +
                " and got '" + text + "'");
  }
  return number;
}

std::string Device(const std::string& name) {
  if (name != "Ascend310" && name != "Ascend" && name != "CPU") {
    throw Error("--device wants Ascend310, Ascend or CPU and got '" + name + "'");
  }
  return name;
}

}  // namespace

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  using Setter = std::function<void(const std::string& flag, const std::string& value)>;
  const auto number = [](int& target, int lowest, int highest) -> Setter {
    return [&target, lowest, highest](const auto& flag, const auto& value) {
      target = WholeNumber(flag, value, lowest, highest);
    };
  };
  int progress = 1;
  const std::map<std::string, Setter> setters = {
      {"--model", [&](const auto&, const auto& value) { options.model = value; }},
      {"--input_dir", [&](const auto&, const auto& value) { options.input_dir = value; }},
      {"--output_dir", [&](const auto&, const auto& value) { options.output_dir = value; }},
      {"--time_dir", [&](const auto&, const auto& value) { options.time_dir = value; }},
      {"--device", [&](const auto&, const auto& value) { options.device = Device(value); }},
      {"--device_id", number(options.device_id, 0, 1023)},
      {"--threads", number(options.threads, 0, 1024)},
      {"--progress", number(progress, 0, 1)},
  };

  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") {
      options.help = true;
      return options;
    }
    const size_t equals = arguments[i].find('=');
    const std::string flag = arguments[i].substr(0, equals);
    const auto setter = setters.find(flag);
    if (setter == setters.end()) {
      throw Error("there is no flag '" + flag + "'; see infer --help");
    }
    std::string value;
    if (equals != std::string::npos) {
      value = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size() && arguments[i + 1].rfind("--", 0) != 0) {
      value = arguments[++i];
    }
    if (value.empty()) {
      throw Error(flag + " wants a value; see infer --help");
    }
    setter->second(flag, value);
  }

  const std::pair<const char*, const std::filesystem::path&> required[] = {
      {"--model", options.model}, {"--input_dir", options.input_dir}, {"--output_dir", options.output_dir}};
  for (const auto& [flag, value] : required) {
    if (value.empty()) {
      throw Error(std::string(flag) + " is missing; see infer --help");
    }
  }
  if (options.threads == 0) {
    options.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
  }
  options.progress = progress == 1;
  return options;
}

const char* HelpText() {
  return R"(usage: infer --model FILE.mindir --input_dir DIR --output_dir DIR [flags]

Runs a classifier over preprocessed images. Every *.bin file below input_dir is one image, the float32 values of the
model's input without its batch dimension; its logits go, as float32, under the same name into output_dir.

  --model       MindIR file with one float32 input of fixed shape and one float32 output
  --input_dir   folder of images; folders in it are searched, too
  --output_dir  folder of results, made when it is missing; results of the same names are replaced
  --device      Ascend310, Ascend (default) or CPU
  --device_id   number of the Ascend device (default 0)
  --threads     threads of the CPU (default 0: one a core, at most 8)
  --time_dir    folder that gets test_perform_static.txt, the average time (default time_Result)
  --progress    1 (default) shows progress on standard error, 0 does not

The exit code is 0 when every image has its result, 130 after Ctrl-C (the batch at work is finished), otherwise 1.
GLOG_v=3 in the environment shows the errors of the MindSpore library, GLOG_v=2 its warnings, too.
)";
}

}  // namespace infer
