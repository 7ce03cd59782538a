#include <cmath>

#include "check.h"
#include "statistics.h"

namespace {

bool Near(double a, double b) { return std::abs(a - b) < 1e-12; }

void PercentilesAreThoseOfNumPy() {  // np.percentile([7, 1, 4, 2, 11], p)
  const std::vector<double> values = {7, 1, 4, 2, 11};
  CHECK(Near(infer::Percentile(values, 0), 1));
  CHECK(Near(infer::Percentile(values, 50), 4));
  CHECK(Near(infer::Percentile(values, 90), 9.4));
  CHECK(Near(infer::Percentile(values, 99), 10.84));
  CHECK(Near(infer::Percentile(values, 100), 11));
}

void OneValueIsEveryPercentile() {
  CHECK(Near(infer::Percentile({3.5}, 50), 3.5));
  CHECK(Near(infer::Percentile({3.5}, 99), 3.5));
}

void ThePerformanceLineHasTheFormOfTheModelZoo() {
  CHECK(infer::PerformanceLine({12.25, 12.5, 14.25}) == "NN inference cost average time: 13 ms of infer_count 3");
  CHECK(infer::PerformanceLine({12.125, 12.5}) == "NN inference cost average time: 12.3125 ms of infer_count 2");
}

void TheSummaryTellsThroughputAndLatency() {
  CHECK(infer::Summary(7, 2.0, 4, {10, 30}) ==
        "7 images in 2.00 s, 3.50 images/s\nlatency of a batch of 4: p50 20.00 ms, p90 28.00 ms, p99 29.80 ms");
}

}  // namespace

int main() {
  PercentilesAreThoseOfNumPy();
  OneValueIsEveryPercentile();
  ThePerformanceLineHasTheFormOfTheModelZoo();
  TheSummaryTellsThroughputAndLatency();
  return failures == 0 ? 0 : 1;
}
