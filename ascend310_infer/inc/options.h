// The command line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace infer {

struct Options {
  std::filesystem::path model;
  std::filesystem::path input_dir;
  std::filesystem::path output_dir;
  std::filesystem::path time_dir = "time_Result";
  std::string device = "Ascend";
  int device_id = 0;
  int threads = 0;  // 0: as many as there are cores, at most 8
  bool progress = true;
  bool help = false;
};

// Reads the arguments after the program's name. Throws Error on an unknown flag, a bad value or a missing flag.
Options ParseOptions(const std::vector<std::string>& arguments);

const char* HelpText();

}  // namespace infer
