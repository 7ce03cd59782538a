#include "tensor_files.h"

#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <vector>

#include "check.h"

namespace fs = std::filesystem;
using infer::FindTensors;

namespace {

void TensorsAreFoundInFoldersAndSorted() {
  const TemporaryFolder folder;
  for (const char* name : {"b/2.bin", "b/10.bin", "a.bin", "c/d/e.bin", "a.bin.part", "label.txt", "b/x.BIN"}) {
    PutFile(folder / name, "");
  }
  fs::create_directory(folder / "empty.bin");
  const std::vector<fs::path> names = {"a.bin", "b/10.bin", "b/2.bin", "c/d/e.bin"};
  CHECK(FindTensors(folder.path()) == names);
  CHECK(FindTensors(folder / "") == names);  // with a slash at the end
}

void LinksAreFollowed() {
  const TemporaryFolder folder;
  PutFile(folder / "real/1.bin", "");
  fs::create_directory(folder / "in");
  fs::create_directory_symlink(folder / "real", folder / "in/linked");
  fs::create_symlink(folder / "nowhere", folder / "in/2.bin");
  CHECK((FindTensors(folder / "in") == std::vector<fs::path>{"2.bin", "linked/1.bin"}));
  fs::create_directory_symlink(folder / "in", folder / "in/loop");
  CHECK_FAILS(FindTensors(folder / "in"), "cannot list " + (folder / "in").string());
}

void AMissingOrEmptyFolderIsRefused() {
  const TemporaryFolder folder;
  CHECK_FAILS(FindTensors(folder / "none"), "--input_dir wants a folder of *.bin files and got ");
  CHECK_FAILS(FindTensors(folder.path()), "no *.bin file lies in " + folder.path().string());
  PutFile(folder / "file", "");
  CHECK_FAILS(FindTensors(folder / "file"), "--input_dir wants a folder");
  CHECK_FAILS(FindTensors(folder / "file/below"), "--input_dir wants a folder");
}

void ValuesAreReadAsTheyStand() {
  const TemporaryFolder folder;
  const std::vector<float> written = {1.5F, -2.25F, 3e-20F};
  PutFile(folder / "x.bin", {reinterpret_cast<const char*>(written.data()), 12});
  std::vector<float> read(3);
  infer::ReadTensor(folder / "x.bin", read.data(), 3);
  CHECK(read == written);
}

void AFileOfAnotherSizeIsRefused() {
  const TemporaryFolder folder;
  std::vector<float> values(3);
  PutFile(folder / "x.bin", std::string(11, 'x'));
  CHECK_FAILS(infer::ReadTensor(folder / "x.bin", values.data(), 3), "x.bin holds 11 bytes, but the model wants 12");
  PutFile(folder / "y.bin", std::string(16, 'x'));
  CHECK_FAILS(infer::ReadTensor(folder / "y.bin", values.data(), 3), "y.bin holds 16 bytes, but the model wants 12");
  CHECK_FAILS(infer::ReadTensor(folder / "z.bin", values.data(), 3), "z.bin: No such file");
  CHECK_FAILS(infer::ReadTensor(folder.path(), values.data(), 3), "cannot read " + folder.path().string());
}

void AResultIsWrittenWholeAndReplacesTheOld() {
  const TemporaryFolder folder;
  infer::WriteFile(folder / "a/b/x.bin", "first, longer");
  infer::WriteFile(folder / "a/b/x.bin", std::string_view("2\0nd", 4));
  CHECK(ReadFile(folder / "a/b/x.bin") == std::string("2\0nd", 4));
  CHECK(!fs::exists(folder / "a/b/x.bin.part"));
}

void AResultThatCannotBeWrittenIsAnErrorAndLeavesNothing() {
  const TemporaryFolder folder;
  PutFile(folder / "file", "");
  CHECK_FAILS(infer::WriteFile(folder / "file/x.bin", "1"), "cannot make the folder " + (folder / "file").string());
  fs::create_directory(folder / "x.bin");
  CHECK_FAILS(infer::WriteFile(folder / "x.bin", "1"), "cannot write " + (folder / "x.bin").string());
  CHECK(!fs::exists(folder / "x.bin.part"));
  CHECK_FAILS(infer::WriteFile("/proc/x.bin", "1"), "cannot write /proc/x.bin: ");
}

void AFullDiskIsAnErrorAndKeepsTheOldResult() {
  const TemporaryFolder folder;
  infer::WriteFile(folder / "x.bin", "old");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = ErrorOf([&] { infer::WriteFile(folder / "x.bin", std::string(200, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(error == "cannot write " + (folder / "x.bin").string() + ": " + std::strerror(EFBIG));
  CHECK(ReadFile(folder / "x.bin") == "old");
  CHECK(!fs::exists(folder / "x.bin.part"));
}

void ResultsAmongTheImagesAreRefused() {
  const TemporaryFolder folder;
  fs::create_directory(folder / "in");
  CHECK_FAILS(infer::CheckApart(folder / "in", folder / "in"), "lies in --input_dir");
  CHECK_FAILS(infer::CheckApart(folder / "in", folder / "in/new/out"), "lies in --input_dir");
  CHECK_FAILS(infer::CheckApart(folder / "in/", folder / "x/../in/out"), "lies in --input_dir");
  infer::CheckApart(folder / "in", folder / "in2");
  infer::CheckApart(folder / "in", folder.path());
}

}  // namespace

int main() {
  TensorsAreFoundInFoldersAndSorted();
  LinksAreFollowed();
  AMissingOrEmptyFolderIsRefused();
  ValuesAreReadAsTheyStand();
  AFileOfAnotherSizeIsRefused();
  AResultIsWrittenWholeAndReplacesTheOld();
  AResultThatCannotBeWrittenIsAnErrorAndLeavesNothing();
  AFullDiskIsAnErrorAndKeepsTheOldResult();
  ResultsAmongTheImagesAreRefused();
  return failures == 0 ? 0 : 1;
}
