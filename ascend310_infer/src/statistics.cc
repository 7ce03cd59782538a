#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <numeric>
#include <sstream>

namespace infer {

double Percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double place = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::string PerformanceLine(const std::vector<double>& latencies_ms) {
  std::ostringstream line;
  line << "NN inference cost average time: " << Mean(latencies_ms) << " ms of infer_count " << latencies_ms.size();
  return line.str();
}

std::string Summary(size_t images, double seconds, size_t batch, const std::vector<double>& latencies_ms) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << images << " images in " << seconds << " s, "
       << static_cast<double>(images) / seconds << " images/s\n"
       << "latency of a batch of " << batch << ": p50 " << Percentile(latencies_ms, 50) << " ms, p90 "
       << Percentile(latencies_ms, 90) << " ms, p99 " << Percentile(latencies_ms, 99) << " ms";
  return text.str();
}

}  // namespace infer
