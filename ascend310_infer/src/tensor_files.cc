#include "tensor_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>

#include "error.h"

namespace infer {
namespace fs = std::filesystem;
namespace {

std::string Reason() { return errno != 0 ? std::strerror(errno) : "unknown reason"; }

}  // namespace

std::vector<fs::path> FindTensors(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw Error("--input_dir wants a folder of *.bin files and got " + folder.string() + ", which is none");
  }
  std::vector<fs::path> names;
  try {
    const auto links = fs::directory_options::follow_directory_symlink;
    for (const auto& entry : fs::recursive_directory_iterator(folder, links)) {
      if (entry.path().extension() == ".bin" && !entry.is_directory()) {
        names.push_back(entry.path().lexically_relative(folder));
      }
    }
  } catch (const fs::filesystem_error& fault) {
    throw Error("cannot list " + fault.path1().string() + ": " + fault.code().message());
  }
  if (names.empty()) {
    throw Error("no *.bin file lies in " + folder.string() + "; write the preprocessed images there first");
  }
  std::sort(names.begin(), names.end());
  return names;
}

void ReadTensor(const fs::path& file, float* values, size_t count) {
  const size_t wanted = count * sizeof(float);
  std::error_code fault;
  const auto size = fs::file_size(file, fault);
  if (fault) {
    throw Error("cannot read " + file.string() + ": " + fault.message());
  }
  if (size != wanted) {
    throw Error(file.string() + " holds " + std::to_string(size) + " bytes, but the model wants " +
                std::to_string(wanted) + " (" + std::to_string(count) +
                " float32 values) an image; preprocess with the image size of the model");
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(wanted))) {
    throw Error("cannot read " + file.string() + ": " + Reason());
  }
}

void WriteFile(const fs::path& file, std::string_view bytes) {
  MakeFolder(file.parent_path());
  fs::path part = file;
  part += ".part";
  errno = 0;
  std::ofstream stream(part, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  std::string reason = stream ? "" : Reason();
  if (stream) {
    std::error_code fault;
    fs::rename(part, file, fault);
    reason = fault ? fault.message() : "";
  }
  if (!reason.empty()) {
    std::error_code ignored;
    fs::remove(part, ignored);
    throw Error("cannot write " + file.string() + ": " + reason);
  }
}

void MakeFolder(const fs::path& folder) {
  std::error_code fault;
  fs::create_directories(folder, fault);
  if (fault) {
    throw Error("cannot make the folder " + folder.string() + ": " + fault.message());
  }
}

void CheckApart(const fs::path& input, const fs::path& output) {
  const fs::path inner = fs::weakly_canonical(output);
  const fs::path outer = fs::weakly_canonical(input);
  if (std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end()) {
    throw Error("--output_dir " + output.string() + " lies in --input_dir " + input.string() +
                "; give results a folder of their own");
  }
}

}  // namespace infer
