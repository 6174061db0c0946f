#include "report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>

#include "sinew/examples/common/files.h"
#include "sinew/examples/common/training_curve.h"

namespace inference_server {
namespace {

constexpr int kCell = 12;

std::string line_of(const std::vector<std::string>& cells) {
  std::ostringstream line;
  for (const std::string& cell : cells) line << std::setw(kCell) << cell;
  return line.str();
}

}  // namespace

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Measurement measure(std::size_t max_batch, const Answers& answers, std::chrono::nanoseconds time,
                    std::uint64_t batches) {
  const auto count = static_cast<double>(answers.latencies_ms.size());
  Measurement result;
  result.max_batch = max_batch;
  result.requests_per_s = count / std::chrono::duration<double>(time).count();
  result.p50_ms = percentile(answers.latencies_ms, 0.5);
  result.p90_ms = percentile(answers.latencies_ms, 0.9);
  result.p99_ms = percentile(answers.latencies_ms, 0.99);
  result.mean_batch = batches == 0 ? 0 : count / static_cast<double>(batches);
  result.refused = answers.refused;
  return result;
}

std::string table_head() {
  return line_of(
      {"max batch", "requests/s", "p50 ms", "p90 ms", "p99 ms", "mean batch", "refused"});
}

std::string table_line(const Measurement& it) {
  using examples::fixed;
  return line_of({std::to_string(it.max_batch), fixed(it.requests_per_s, 0), fixed(it.p50_ms, 2),
                  fixed(it.p90_ms, 2), fixed(it.p99_ms, 2), fixed(it.mean_batch, 1),
                  std::to_string(it.refused)});
}

void write_report(const std::vector<Measurement>& measurements,
                  const std::filesystem::path& folder) {
  examples::TrainingCurve throughput;
  throughput.title = "Answers by batches: throughput";
  throughput.clock = "max_batch";
  throughput.unit = "requests/s";
  throughput.names = {"requests_per_s"};
  examples::TrainingCurve latency;
  latency.title = "Answers by batches: latency";
  latency.clock = "max_batch";
  latency.unit = "ms";
  latency.names = {"p99_ms", "p90_ms", "p50_ms"};
  for (const Measurement& it : measurements) {
    const auto at = static_cast<double>(it.max_batch);
    throughput.points.push_back({at, {it.requests_per_s}});
    latency.points.push_back({at, {it.p99_ms, it.p90_ms, it.p50_ms}});
  }
  examples::write_curve(throughput, folder, "throughput");
  examples::write_curve(latency, folder, "latency");
}

}  // namespace inference_server
