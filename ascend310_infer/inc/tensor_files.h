// Images and results as files of raw little-endian float32 values.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

namespace infer {

// The *.bin files below `folder`, symbolic links followed, as sorted paths relative to it.
// Throws Error when the folder cannot be read or holds none.
std::vector<std::filesystem::path> FindTensors(const std::filesystem::path& folder);

// Reads a file that holds exactly `count` values.
void ReadTensor(const std::filesystem::path& file, float* values, size_t count);

// Writes under the name `file`.part and renames, so that `file` is never there in part.
void WriteFile(const std::filesystem::path& file, std::string_view bytes);

// Makes `folder` and those above it unless they are there.
void MakeFolder(const std::filesystem::path& folder);

// Throws Error when `output` is `input` or lies in it: results would become images of the next run.
void CheckApart(const std::filesystem::path& input, const std::filesystem::path& output);

}  // namespace infer
