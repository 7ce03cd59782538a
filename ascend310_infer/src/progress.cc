#include "progress.h"

#include <iomanip>
#include <sstream>

namespace infer {

Progress::~Progress() {
  if (line_is_open_) {
    stream_ << std::endl;
  }
}

void Progress::Show(size_t done, double seconds) {
  if (seconds < next_ && done < total_) {
    return;
  }
  next_ = seconds + (terminal_ ? 0.2 : 10.0);
  std::ostringstream line;
  line << done << "/" << total_ << " images, " << std::fixed << std::setprecision(1)
       << static_cast<double>(done) / seconds << " images/s";
  if (terminal_) {
    stream_ << "\r" << line.str() << "\033[K" << std::flush;  // the code clears the rest of the line
    line_is_open_ = true;
  } else {
    stream_ << line.str() << std::endl;
  }
}

}  // namespace infer
