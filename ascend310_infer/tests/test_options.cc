#include "check.h"
#include "options.h"

using infer::ParseOptions;

namespace {

void EveryFlagArrives() {
  const auto options =
      ParseOptions({"--model", "m.mindir", "--input_dir=in", "--output_dir", "out", "--device", "Ascend310",
                    "--device_id=3", "--threads", "5", "--time_dir", "times", "--progress", "0"});
  CHECK(options.model == "m.mindir");
  CHECK(options.input_dir == "in");
  CHECK(options.output_dir == "out");
  CHECK(options.device == "Ascend310");
  CHECK(options.device_id == 3);
  CHECK(options.threads == 5);
  CHECK(options.time_dir == "times");
  CHECK(!options.progress);
}

void WhatIsLeftOutHasDefaults() {
  const auto options = ParseOptions({"--model", "m", "--input_dir", "i", "--output_dir", "o"});
  CHECK(options.device == "Ascend");
  CHECK(options.device_id == 0);
  CHECK(options.threads >= 1 && options.threads <= 8);
  CHECK(options.time_dir == "time_Result");
  CHECK(options.progress);
  CHECK(!options.help);
}

void AValueMayHoldAnEqualsSign() {
  CHECK(ParseOptions({"--model=a=b", "--input_dir", "c=d", "--output_dir", "o"}).model == "a=b");
  CHECK(ParseOptions({"--model=a=b", "--input_dir", "c=d", "--output_dir", "o"}).input_dir == "c=d");
}

void HelpNeedsNothingElse() {
  CHECK(ParseOptions({"--help"}).help);
  CHECK(ParseOptions({"--model", "m", "-h"}).help);
}

void WrongArgumentsAreRefused() {
  CHECK_FAILS(ParseOptions({"--modle", "m"}), "no flag '--modle'");
  CHECK_FAILS(ParseOptions({"m.mindir"}), "no flag 'm.mindir'");
  CHECK_FAILS(ParseOptions({"--model"}), "--model wants a value");
  CHECK_FAILS(ParseOptions({"--model", "--input_dir", "i"}), "--model wants a value");
  CHECK_FAILS(ParseOptions({"--model="}), "--model wants a value");
  CHECK_FAILS(ParseOptions({}), "--model is missing");
  CHECK_FAILS(ParseOptions({"--model", "m", "--output_dir", "o"}), "--input_dir is missing");
  CHECK_FAILS(ParseOptions({"--device", "GPU"}), "wants Ascend310, Ascend or CPU and got 'GPU'");
  CHECK_FAILS(ParseOptions({"--device_id", "-1"}), "--device_id wants a whole number");
  CHECK_FAILS(ParseOptions({"--threads", "two"}), "got 'two'");
  CHECK_FAILS(ParseOptions({"--threads", "2x"}), "got '2x'");
  CHECK_FAILS(ParseOptions({"--threads", "99999999999"}), "got '99999999999'");
  CHECK_FAILS(ParseOptions({"--progress", "2"}), "from 0 to 1");
}

}  // namespace

int main() {
  EveryFlagArrives();
  WhatIsLeftOutHasDefaults();
  AValueMayHoldAnEqualsSign();
  HelpNeedsNothingElse();
  WrongArgumentsAreRefused();
  return failures == 0 ? 0 : 1;
}
