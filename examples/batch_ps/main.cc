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
  worker.methods = sinew::serve<batch_ps::Trainer>().serve<batch_ps::BatchServer>(
      sinew::one_at_a_time(batch_ps::kTurns));
  return examples::join_job(std::move(worker));  // its rank, and where to meet, are the launcher's
}

/// Has all trainers make so many steps; the mean of their losses. Who is lost leaves the team, and
/// the others go on. Throws RpcError when none is left.
double train(const sinew::Team<batch_ps::Trainer>& team,
             const sinew::RRef<batch_ps::BatchServer>& server, std::int64_t steps) {
  std::size_t left = team.size();
  server.call<&batch_ps::BatchServer::set_trainers>(left);
  double loss = 0;
  for (const auto& round :
       team.within(sinew::kNoTimeout).call_all<&batch_ps::Trainer::train>(server, steps)) {
    if (round.ok()) {
      loss += round.value();
      continue;
    }
    if (!round.lost() || --left == 0) round.value();  // throws
    server.call<&batch_ps::BatchServer::set_trainers>(left);
    std::cout << round.member.name << " is lost; the others go on" << std::endl;
  }
  return loss / static_cast<double>(left);
}

/// Returns what the program ends with.
int lead(const sinew::Worker& worker, int world_size, const batch_ps::Options& options) {
  const auto server =
      worker.peer(worker.rank())
          .remote<batch_ps::BatchServer>(options.lr, options.seed, options.history.string());
  const auto team = worker.team<batch_ps::Trainer>("*", [&](const sinew::Peer& peer) {
    return peer.remote<batch_ps::Trainer>(std::int64_t{peer.info().rank}, options.batch,
                                          options.seed, options.history.string());
  });
  team.wait_for(static_cast<std::size_t>(world_size - 1));
  const examples::Spirals test = examples::Spirals::make(kTestPoints, kTestSeed);
  std::int64_t done = 0;
  while (done < options.steps && !examples::StopSignal::requested()) {
    const double loss = train(team, server, std::min(kRound, options.steps - done));
    const auto model = server.call<&batch_ps::BatchServer::parameters>();
    const double right = examples::accuracy(batch_ps::scores(model, test.points), test.arms);
    done = server.call<&batch_ps::BatchServer::steps>();
    std::cout << "Step " << done << ": loss " << examples::fixed(loss, 4) << ", accuracy "
              << examples::fixed(right, 4) << std::endl;
  }
  return done < options.steps ? examples::stopped_status() : 0;
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
