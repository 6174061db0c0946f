// A process of the job: rank 0 is the server, which also leads; the others are clients.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/Parallel.h"
#include "classifier.h"
#include "client.h"
#include "options.h"
#include "report.h"
#include "sinew/examples/common/job.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/sinew.h"

namespace {

using inference_server::Answers;
using inference_server::Classifier;
using inference_server::Load;
using inference_server::Measurement;
using inference_server::Options;

sinew::Worker start_worker(const sinew::LaunchPlace& place) {
  sinew::WorkerOptions worker;
  worker.name = "worker" + std::to_string(place.rank);
  worker.methods.add<&Classifier::scores, &inference_server::make_requests>();
  return examples::join_job(std::move(worker));  // its rank, and where to meet, are the launcher's
}

/// Lets all clients make requests at once, and waits for the answers.
Answers make_all_requests(const sinew::Worker& worker, const sinew::RRef<Classifier>& classifier,
                          const Options& options, std::int64_t requests) {
  const auto clients = static_cast<std::int64_t>(worker.workers().size()) - 1;
  std::vector<sinew::Future<Answers>> running;
  for (const sinew::WorkerInfo& client : worker.workers()) {
    if (client == worker.info()) continue;
    const Load load = {requests, options.in_flight, options.rate / static_cast<double>(clients),
                       options.width, options.seed * 1000 + client.rank};
    running.push_back(worker.peer(client)
                          .within(sinew::kNoTimeout)
                          .async<&inference_server::make_requests>(classifier, load));
  }
  Answers all;
  for (const Answers& own : sinew::wait_all(std::move(running))) {
    all.latencies_ms.insert(all.latencies_ms.end(), own.latencies_ms.begin(),
                            own.latencies_ms.end());
    all.refused += own.refused;
  }
  return all;
}

Measurement measure(const sinew::Worker& worker, const Options& options, std::size_t max_batch) {
  inference_server::NetworkSettings network;
  network.width = options.width;
  network.layers = options.layers;
  network.seed = options.seed;
  sinew::BatcherOptions batching;
  batching.max_batch = max_batch;
  batching.max_queued = options.max_queued;
  batching.max_wait = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double, std::milli>(options.max_wait_ms));
  const auto classifier = std::make_shared<Classifier>(network, batching);
  const sinew::RRef<Classifier> shared = sinew::share_rref(worker, classifier);
  // Connections, memory and caches: the first requests are not counted.
  make_all_requests(worker, shared, options, std::min<std::int64_t>(options.requests, 100));
  const std::uint64_t batches = classifier->stats().batches;
  const auto start = std::chrono::steady_clock::now();
  const Answers answers = make_all_requests(worker, shared, options, options.requests);
  const auto time = std::chrono::steady_clock::now() - start;
  return inference_server::measure(max_batch, answers, time, classifier->stats().batches - batches);
}

/// Returns what the program ends with.
int lead(const sinew::Worker& worker, const Options& options) {
  std::cout << inference_server::table_head() << std::endl;
  std::vector<Measurement> measurements;
  for (const std::size_t max_batch : options.batches) {
    if (examples::StopSignal::requested()) return examples::stopped_status();
    measurements.push_back(measure(worker, options, max_batch));
    std::cout << inference_server::table_line(measurements.back()) << std::endl;
  }
  if (!options.output.empty()) {
    inference_server::write_report(measurements, options.output);
    std::cout << "Wrote throughput and latency to " << options.output << "/" << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = inference_server::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<Options>(parsed);
  const auto found =
      examples::find_place({"inference_server", "sinew-run --nproc 4 inference_server", 2, 257});
  if (const int* status = std::get_if<int>(&found)) return *status;
  const auto& place = std::get<sinew::LaunchPlace>(found);
  at::set_num_threads(place.rank == 0 ? options.threads : 1);
  return examples::run_job(
      "inference_server", [&] { return start_worker(place); },
      [&](const sinew::Worker& worker) { return worker.rank() == 0 ? lead(worker, options) : 0; });
}
