// The little that the unit tests need: checks that count failures, and a folder that goes away.
#pragma once

#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "error.h"

inline int failures = 0;

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      std::cerr << __FILE__ << ":" << __LINE__ << ": not so: " #condition << std::endl; \
      ++failures;                                                                     \
    }                                                                                 \
  } while (false)

#define CHECK_FAILS(call, words)                                                                        \
  do {                                                                                                  \
    const std::string text = ErrorOf([&] { call; });                                                    \
    if (text.find(words) == std::string::npos) {                                                        \
      std::cerr << __FILE__ << ":" << __LINE__ << ": '" << text << "' does not say '" << (words) << "'" \
                << std::endl;                                                                           \
      ++failures;                                                                                       \
    }                                                                                                   \
  } while (false)

inline std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const infer::Error& error) {
    return error.what();
  }
  return "(no error)";
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "infer-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("cannot make a temporary folder");
    }
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string ReadFile(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void PutFile(const std::filesystem::path& file, const std::string& bytes) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}
