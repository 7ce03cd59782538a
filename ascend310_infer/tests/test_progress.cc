#include <sstream>

#include "check.h"
#include "progress.h"

namespace {

void AFileGetsALineEveryTenSecondsAndTheLast() {
  std::ostringstream stream;
  {
    infer::Progress progress(stream, 100, false);
    progress.Show(4, 2);
    progress.Show(20, 9);
    progress.Show(40, 12.5);
    progress.Show(60, 13);
    progress.Show(100, 20);
  }
  CHECK(stream.str() ==
        "4/100 images, 2.0 images/s\n40/100 images, 3.2 images/s\n100/100 images, 5.0 images/s\n");
}

void ATerminalGetsOneLineThatIsRewritten() {
  std::ostringstream stream;
  {
    infer::Progress progress(stream, 8, true);
    progress.Show(2, 1);
    progress.Show(4, 1.1);
    progress.Show(8, 2);
  }
  CHECK(stream.str() == "\r2/8 images, 2.0 images/s\033[K\r8/8 images, 4.0 images/s\033[K\n");
}

void NothingIsWrittenBeforeTheFirstBatch() {
  std::ostringstream stream;
  { infer::Progress progress(stream, 8, true); }
  CHECK(stream.str().empty());
}

}  // namespace

int main() {
  AFileGetsALineEveryTenSecondsAndTheLast();
  ATerminalGetsOneLineThatIsRewritten();
  NothingIsWrittenBeforeTheFirstBatch();
  return failures == 0 ? 0 : 1;
}
