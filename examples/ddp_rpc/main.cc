// A process of the job: rank 0 leads, the last one is the parameter server, and those between are
// trainers.

#include <iostream>
#include <string>
#include <utility>
#include <variant>

#include "ATen/Parallel.h"
#include "options.h"
#include "sinew/examples/common/job.h"
#include "sinew/examples/common/ranks.h"
#include "sinew/sinew.h"
#include "training.h"

namespace {

sinew::Worker start_worker(const sinew::LaunchPlace& place, const ddp_rpc::Options& options) {
  const bool is_trainer = place.rank > 0 && place.rank < place.world_size - 1;
  if (is_trainer) examples::device_of(options.device);  // or it says why not, before others wait
  sinew::WorkerOptions worker;
  worker.name = "trainer" + std::to_string(place.rank - 1);
  if (place.rank == 0) worker.name = "leader";
  if (place.rank == place.world_size - 1) worker.name = "server";
  ddp_rpc::add_methods(worker.methods);
  return examples::join_job(std::move(worker));
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = ddp_rpc::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<ddp_rpc::Options>(parsed);
  at::set_num_threads(1);
  if (options.local) {
    return examples::guarded("ddp_rpc", [&] {
      ddp_rpc::train_alone(options, std::cout);
      return 0;
    });
  }
  const auto found = examples::find_place({"ddp_rpc", "sinew-run --nproc 4 ddp_rpc", 3, 258});
  if (const int* status = std::get_if<int>(&found)) return *status;
  const auto& place = std::get<sinew::LaunchPlace>(found);
  return examples::run_job(
      "ddp_rpc", [&] { return start_worker(place, options); },
      [&](const sinew::Worker& worker) {
        examples::say_rank(worker.rank());
        if (worker.rank() == 0) ddp_rpc::train(worker, place.world_size, options, std::cout);
        return 0;
      });
}
