#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/benchmarks/apart.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/worker_processes.h"
#include "sinew/rpc/batcher.h"
#include "sinew/sinew.h"

/// A policy that answers its clients in batches. The same work as peers/torch_batches.py.
namespace sinew::bench {

/// A network of 4, 128 and 2 units.
class BatchedPolicy {
 public:
  explicit BatchedPolicy(int clients)
      : batcher_([this](const std::vector<at::Tensor>& states) { return act(states); },
                 batches_of(clients)) {}

  /// The action for a state of four numbers; less than 0 once it is over.
  Future<std::int64_t> select_action(at::Tensor state) { return batcher_(std::move(state)); }

  std::uint64_t calls() const { return batcher_.stats().calls; }
  void finish() { finished_ = true; }

 private:
  static BatcherOptions batches_of(int clients) {
    BatcherOptions options;
    options.max_batch = static_cast<std::size_t>(clients);
    options.max_wait = std::chrono::milliseconds(10);
    return options;
  }

  std::vector<std::int64_t> act(const std::vector<at::Tensor>& states) {
    const at::NoGradGuard no_grad;
    const at::Tensor hidden = at::relu(at::linear(at::stack(states), weights_[0], biases_[0]));
    const at::Tensor actions = at::linear(hidden, weights_[1], biases_[1]).argmax(1);
    const auto* first = actions.data_ptr<std::int64_t>();
    std::vector<std::int64_t> each(first, first + states.size());
    if (finished_) std::fill(each.begin(), each.end(), -1);
    return each;
  }

  const at::Tensor weights_[2] = {at::randn({128, 4}), at::randn({2, 128})};
  const at::Tensor biases_[2] = {at::zeros({128}), at::zeros({2})};
  std::atomic<bool> finished_{false};
  Batcher<at::Tensor, std::int64_t> batcher_;
};

}  // namespace sinew::bench

SINEW_SERVICE(sinew::bench::BatchedPolicy, (int), select_action);

namespace sinew::bench {

/// Calls that `clients` processes, one call at a time each, have answered in a second.
inline double batched_calls_per_s(const Options& options, int clients) {
  const WorkerProcesses processes(numbered_names("server", "client", clients),
                                  [](const Worker& worker) {
                                    const auto policy = worker.find<BatchedPolicy>("server/policy");
                                    const at::Tensor state = at::rand({4});
                                    while (policy.call<&BatchedPolicy::select_action>(state) >= 0) {
                                    }
                                  });
  compute_on_one_thread();
  const auto policy = std::make_shared<BatchedPolicy>(clients);
  WorkerOptions worker_options = processes.place(0);
  worker_options.methods.add<&BatchedPolicy::select_action>();
  const Worker worker = init_rpc(std::move(worker_options));
  worker.publish<BatchedPolicy>("policy", policy);
  std::this_thread::sleep_for(2 * options.rate_warm_up());
  const Clock::time_point start = Clock::now();
  const std::uint64_t before = policy->calls();
  std::this_thread::sleep_for(options.rate_window());
  const std::uint64_t answered = policy->calls() - before;
  const double rate =
      static_cast<double>(answered) / std::chrono::duration<double>(Clock::now() - start).count();
  policy->finish();
  worker.shutdown();
  return rate;
}

inline void measure_batches(const Options& options) {
  for (const int clients : {1, 4, 8}) {
    const std::string figure = "batcher_calls_per_s_" + std::to_string(clients);
    if (!options.wants(figure)) continue;
    options.report(figure, measure_apart([&] {
                             return std::vector<double>{batched_calls_per_s(options, clients)};
                           }).at(0));
  }
}

}  // namespace sinew::bench
