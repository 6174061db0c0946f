// A method that asks all workers and holds no thread while it waits. The processes of a job all run
// this program:
//
//   sinew-run --nproc 3 coroutine

#include "sinew/rpc/coroutine.h"

#include <iostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sinew/examples/common/job.h"
#include "sinew/sinew.h"

namespace app {

double figure();
sinew::Future<double> mean_of_all();

}  // namespace app

SINEW_METHOD(app::figure, app::mean_of_all);

namespace app {

double figure() { return 10.0 * sinew::current_worker().rank(); }

sinew::Future<double> mean_of_all() {
  const sinew::Worker worker = sinew::current_worker();
  std::vector<sinew::Future<double>> figures;
  for (const sinew::WorkerInfo& peer : worker.workers()) {
    figures.push_back(worker.peer(peer).async<&figure>());  // all are asked at once
  }
  double sum = 0;
  for (const sinew::Future<double>& one : figures) sum += co_await one;
  co_return sum / static_cast<double>(figures.size());
}

}  // namespace app

int main() {
  const auto found = examples::find_place({"coroutine", "sinew-run --nproc 3 coroutine", 1, 1024});
  if (const int* status = std::get_if<int>(&found)) return *status;
  return examples::run_job(
      "coroutine",
      [&] {
        sinew::WorkerOptions options;
        options.name = "worker" + std::to_string(std::get<sinew::LaunchPlace>(found).rank);
        // One thread: a mean that is under way does not hold it.
        options.num_threads = 1;
        options.methods.add<&app::figure, &app::mean_of_all>();
        return examples::join_job(std::move(options));
      },
      [](const sinew::Worker& worker) {
        if (worker.rank() != 0) return 0;
        for (const sinew::WorkerInfo& peer : worker.workers()) {
          std::cout << "The mean, says " << peer.name << ", is "
                    << worker.peer(peer).call<&app::mean_of_all>() << std::endl;
        }
        return 0;
      });
}
