// A process of the job: rank 0 is the server, which also leads; the others are trainers.

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "options.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/job.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/sinew.h"
#include "trainer.h"

namespace {

constexpr std::int64_t kRound = 100;
constexpr std::int64_t kTestPoints = 3000;
constexpr std::int64_t kTestSeed = 7;

sinew::Worker start_worker(const sinew::LaunchPlace& place) {
  sinew::WorkerOptions worker;
  worker.name = "worker" + std::to_string(place.rank);
  // One thread is enough for a server whose handlers hold none while they wait.
  worker.num_threads = 1;
  worker.methods = sinew::serve<batch_ps::Trainer>()
                       .add<&batch_ps::BatchServer::parameters, &batch_ps::BatchServer::update>();
  return examples::join_job(std::move(worker));  // its rank, and where to meet, are the launcher's
}

/// The trainers that are left. When one is lost the server counts on it no more, and the others go
/// on.
class Team {
 public:
  Team(const sinew::Worker& worker, int world_size, const batch_ps::Options& options,
       std::shared_ptr<batch_ps::BatchServer> server)
      : server_(std::move(server)), self_(sinew::share_rref(server_)) {
    for (int rank = 1; rank < world_size; ++rank) {
      trainers_.push_back(worker.remote<batch_ps::Trainer>(rank, rank, options.batch, options.seed,
                                                           options.history.string()));
    }
    watch_ = worker.on_member([server = server_, worker](const sinew::MemberEvent& event) {
      using Kind = sinew::MemberEvent::Kind;
      if (event.kind != Kind::kLost && event.kind != Kind::kLeft) return;
      const std::size_t left = worker.workers().size() - 1;
      if (left > 0) server->set_trainers(left);
    });
  }

  /// Has all make so many steps; the mean of their losses. Throws RpcError when none is left.
  double train(std::int64_t steps) {
    std::vector<sinew::Future<double>> rounds;
    for (const auto& trainer : trainers_) {
      rounds.push_back(
          trainer.within(sinew::kNoTimeout).async<&batch_ps::Trainer::train>(self_, steps));
    }
    std::vector<sinew::RRef<batch_ps::Trainer>> left;
    double loss = 0;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      try {
        loss += rounds[i].wait();
        left.push_back(trainers_[i]);
      } catch (const sinew::RpcError& error) {
        const bool is_last = left.empty() && i + 1 == rounds.size();
        if (is_last || trainers_[i].peer().alive()) throw;
        std::cout << error.message() << "; the others go on" << std::endl;
      }
    }
    trainers_ = std::move(left);
    return loss / static_cast<double>(trainers_.size());
  }

 private:
  const std::shared_ptr<batch_ps::BatchServer> server_;
  const sinew::RRef<batch_ps::BatchServer> self_;
  std::vector<sinew::RRef<batch_ps::Trainer>> trainers_;
  sinew::MemberWatch watch_;
};

/// Returns what the program ends with.
int lead(const sinew::Worker& worker, int world_size, const batch_ps::Options& options) {
  const auto server = std::make_shared<batch_ps::BatchServer>(
      static_cast<std::size_t>(world_size - 1), options.lr, options.seed, options.history);
  Team team(worker, world_size, options, server);
  const examples::Spirals test = examples::Spirals::make(kTestPoints, kTestSeed);
  while (server->steps() < options.steps && !examples::StopSignal::requested()) {
    const double loss = team.train(std::min(kRound, options.steps - server->steps()));
    const double right =
        examples::accuracy(batch_ps::scores(server->parameters(), test.points), test.arms);
    std::cout << "Step " << server->steps() << ": loss " << examples::fixed(loss, 4)
              << ", accuracy " << examples::fixed(right, 4) << std::endl;
  }
  return server->steps() < options.steps ? examples::stopped_status() : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = batch_ps::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<batch_ps::Options>(parsed);
  const auto found = examples::find_place({"batch_ps", "sinew-run --nproc 4 batch_ps", 2, 257});
  if (const int* status = std::get_if<int>(&found)) return *status;
  const auto& place = std::get<sinew::LaunchPlace>(found);
  at::set_num_threads(1);
  return examples::run_job(
      "batch_ps", [&] { return start_worker(place); },
      [&](const sinew::Worker& worker) {
        return worker.rank() == 0 ? lead(worker, place.world_size, options) : 0;
      });
}
