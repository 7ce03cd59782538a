// What a run tells of its speed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace infer {

// Between the two nearest values the percentile is interpolated, as NumPy does. `values` are not empty.
double Percentile(std::vector<double> values, double percent);

double Mean(const std::vector<double>& values);

// The line of test_perform_static.txt, as in MindSpore's model zoo: the mean over the calls of the model.
std::string PerformanceLine(const std::vector<double>& latencies_ms);

// Throughput, and latency of a batch.
std::string Summary(size_t images, double seconds, size_t batch, const std::vector<double>& latencies_ms);

}  // namespace infer
