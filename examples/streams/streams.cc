// Streams both ways: a sensor sends what it measures for as long as somebody reads, and a monitor
// takes a log that the caller writes. The processes of a job all run this program:
//
//   sinew-run --nproc 2 streams

#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <variant>

#include "sinew/examples/common/job.h"
#include "sinew/sinew.h"

namespace app {

struct Reading {
  std::int64_t number = 0;
  double value = 0;
};

}  // namespace app
SINEW_STRUCT(app::Reading, number, value);

namespace app {

/// Measures until the caller reads no more.
sinew::Stream<Reading> measure() {
  return sinew::write_stream<Reading>([](sinew::StreamWriter<Reading>& writer) {
    for (std::int64_t i = 0;; ++i) {
      // Waits while nobody reads; throws when nobody will.
      writer.write({i, std::sin(0.1 * static_cast<double>(i))});
    }
  });
}

/// The mean of what the caller writes.
double mean(sinew::Stream<double> values) {
  double sum = 0;
  std::int64_t count = 0;
  for (const double value : values) {
    sum += value;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace app

SINEW_METHOD(app::measure, app::mean);

namespace {

int read_and_write(const sinew::Worker& worker) {
  if (worker.rank() != 0) return 0;
  const sinew::Peer sensor = worker.peer(static_cast<int>(worker.workers().size()) - 1);
  // Both at once: what comes from the sensor goes to the mean.
  auto [writer, values] = sinew::make_stream<double>();
  auto mean = sensor.async<&app::mean>(std::move(values));
  for (const app::Reading& reading : sensor.call<&app::measure>()) {
    if (reading.number == 1000) break;  // the sensor is told
    writer.write(reading.value);
  }
  writer.finish();
  std::cout << "The mean of 1000 readings is " << mean.take() << std::endl;
  return 0;
}

}  // namespace

int main() {
  const auto found = examples::find_place({"streams", "sinew-run --nproc 2 streams", 1, 1024});
  if (const int* status = std::get_if<int>(&found)) return *status;
  return examples::run_job(
      "streams",
      [&] {
        sinew::WorkerOptions options;
        options.name = "worker" + std::to_string(std::get<sinew::LaunchPlace>(found).rank);
        options.methods.add<&app::measure, &app::mean>();
        return examples::join_job(std::move(options));
      },
      &read_and_write);
}
