// A process of the job: rank 0 drives, ranks 1 to 3 hold a stage of the network each.

#include <chrono>
#include <iostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "options.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/job.h"
#include "sinew/examples/common/spirals.h"
#include "sinew/sinew.h"
#include "stage.h"

namespace {

constexpr std::int64_t kLogInterval = 50;
constexpr std::int64_t kTestPoints = 3000;
constexpr std::int64_t kTestSeed = 7;

sinew::Worker start_worker(const sinew::LaunchPlace& place) {
  sinew::WorkerOptions worker;
  worker.name = "worker" + std::to_string(place.rank);
  // A stage computes one part at a time. A part that waits for the stage before holds no thread.
  worker.num_threads = 1;
  pipeline::add_stage_methods(worker.methods);
  return examples::join_job(std::move(worker));  // its rank, and where to meet, are the launcher's
}

void drive(const sinew::Worker& worker, const pipeline::Options& options) {
  std::vector<sinew::Peer> peers;
  for (int rank = 1; rank <= pipeline::kStages; ++rank) peers.push_back(worker.peer(rank));
  pipeline::StageSettings settings;
  settings.inputs = 2;
  settings.outputs = examples::Spirals::kClasses;
  settings.width = options.width;
  settings.layers = options.layers;
  settings.seed = options.seed;
  const pipeline::Pipeline network(worker, peers, settings, options.lr);

  const examples::Spirals test = examples::Spirals::make(kTestPoints, kTestSeed);
  auto start = std::chrono::steady_clock::now();
  std::int64_t timed = 0;
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const auto data = examples::Spirals::make(options.batch, options.seed * 1'000'000 + step);
    const double loss = network.train_step(data.points, data.arms, options.micro_batches);
    ++timed;
    if (step % kLogInterval != 0 && step != options.steps) continue;
    const auto end = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(end - start).count();
    const double right =
        examples::accuracy(network.forward(test.points, options.micro_batches), test.arms);
    std::cout << "Step " << step << ": loss " << examples::fixed(loss, 4) << ", accuracy "
              << examples::fixed(right, 4) << ", "
              << examples::fixed(ms / static_cast<double>(timed), 1) << " ms/step" << std::endl;
    start = std::chrono::steady_clock::now();
    timed = 0;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = pipeline::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<pipeline::Options>(parsed);
  constexpr int kProcesses = 1 + pipeline::kStages;
  const auto found =
      examples::find_place({"pipeline", "sinew-run --nproc 4 pipeline", kProcesses, kProcesses});
  if (const int* status = std::get_if<int>(&found)) return *status;
  at::set_num_threads(1);
  return examples::run_job(
      "pipeline", [&] { return start_worker(std::get<sinew::LaunchPlace>(found)); },
      [&](const sinew::Worker& worker) {
        if (worker.rank() == 0) drive(worker, options);
        return 0;
      });
}
