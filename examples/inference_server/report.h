#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "client.h"

namespace inference_server {

/// What was measured with one size of batches.
struct Measurement {
  std::size_t max_batch = 0;
  double requests_per_s = 0;
  /// Milliseconds within which that share of the requests was answered.
  double p50_ms = 0;
  double p90_ms = 0;
  double p99_ms = 0;
  /// Requests of a batch.
  double mean_batch = 0;
  std::int64_t refused = 0;
};

/// The smallest of `values` that at least that share of them (0 to 1) does not exceed; NaN for
/// none.
double percentile(std::vector<double> values, double share);

/// `answers` came within `time`, in so many batches.
Measurement measure(std::size_t max_batch, const Answers& answers, std::chrono::nanoseconds time,
                    std::uint64_t batches);

/// The head of the table, and a line of it.
std::string table_head();
std::string table_line(const Measurement& measurement);

/// Writes `throughput` and `latency`, as .csv and .svg. Throws std::runtime_error when it cannot.
void write_report(const std::vector<Measurement>& measurements,
                  const std::filesystem::path& folder);

}  // namespace inference_server
