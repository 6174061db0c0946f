// A process of the job: rank 0 is the server, which also leads; the others are trainers.

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "options.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/job.h"
#include "sinew/sinew.h"
#include "trainer.h"

namespace {

constexpr std::int64_t kRound = 100;
constexpr std::int64_t kTestPoints = 3000;
constexpr std::int64_t kTestSeed = 7;

sinew::Worker start_worker(const batch_ps::Options& options) {
  sinew::WorkerOptions worker;
  worker.name = examples::name_by_rank("worker");
  worker.world_size = options.trainers + 1;
  // One thread is enough for a server whose handlers hold none while they wait.
  worker.num_threads = 1;
  worker.methods.add<&batch_ps::BatchServer::parameters>()
      .add<&batch_ps::BatchServer::update>()
      .add_class<batch_ps::Trainer>()
      .add<&batch_ps::Trainer::train>();
  return sinew::init_rpc(std::move(worker));
}

void lead(const sinew::Worker& worker, const batch_ps::Options& options) {
  const auto server = std::make_shared<batch_ps::BatchServer>(
      static_cast<std::size_t>(options.trainers), options.lr, options.seed);
  const sinew::RRef<batch_ps::BatchServer> self = sinew::share_rref(worker, server);
  std::vector<sinew::RRef<batch_ps::Trainer>> trainers;
  for (int rank = 1; rank <= options.trainers; ++rank) {
    trainers.push_back(
        sinew::remote<batch_ps::Trainer>(worker.peer(rank), rank, options.batch, options.seed));
  }
  const examples::Spirals test = examples::Spirals::make(kTestPoints, kTestSeed);
  sinew::CallOptions patient;
  patient.timeout = sinew::kNoTimeout;
  for (std::int64_t done = 0; done < options.steps;) {
    const std::int64_t steps = std::min(kRound, options.steps - done);
    std::vector<sinew::Future<double>> rounds;
    for (const auto& trainer : trainers) {
      rounds.push_back(
          sinew::rpc_async<&batch_ps::Trainer::train>(with(trainer, patient), self, steps));
    }
    double loss = 0;
    for (const auto& round : rounds) loss += round.wait() / options.trainers;
    done += steps;
    const double right =
        examples::accuracy(batch_ps::scores(server->parameters(), test.points), test.arms);
    std::cout << "Step " << server->steps() << ": loss " << examples::fixed(loss, 4)
              << ", accuracy " << examples::fixed(right, 4) << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = batch_ps::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<batch_ps::Options>(parsed);
  at::set_num_threads(1);
  return examples::run_job(
      "batch_ps", [&] { return start_worker(options); },
      [&](const sinew::Worker& worker) {
        if (worker.rank() == 0) lead(worker, options);
        return 0;
      });
}
