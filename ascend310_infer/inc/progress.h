// How far a run is: on a terminal one line that is rewritten, elsewhere a line every ten seconds.
#pragma once

#include <cstddef>
#include <ostream>

namespace infer {

class Progress {
 public:
  Progress(std::ostream& stream, size_t total, bool terminal) : stream_(stream), total_(total), terminal_(terminal) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` images are through the model `seconds` after the start.
  void Show(size_t done, double seconds);

 private:
  std::ostream& stream_;
  const size_t total_;
  const bool terminal_;
  double next_ = 0;
  bool line_is_open_ = false;
};

}  // namespace infer
