#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sinew/examples/rl/agent.h"
#include "sinew/testing/faults.h"
#include "sinew/tests/support/cluster.h"

namespace rl {

/// An agent on worker0, and observers on the others.
class AgentTest : public sinew::testing::ClusterTest {
 protected:
  void make(int observers, const Options& options = {}) {
    sinew::MethodTable methods = sinew::serve<Observer>();
    methods.add<&Agent::select_action, &Agent::report_reward, &Agent::select_actions,
                &Agent::report_rewards>();
    faults_ = &start(1 + observers, methods, [this](int rank, sinew::WorkerOptions& worker) {
                 worker_options_[static_cast<std::size_t>(rank)] = worker;
               }).faults();
    agent_ = std::make_shared<Agent>(worker(0), options,
                                     [this](const std::string& line) { told_.push_back(line); });
    self_ = sinew::share_rref(worker(0), agent_);
  }
  void TearDown() override {
    self_ = {};
    agent_.reset();
    HasFailure() ? abandon() : finish();
  }

  /// As if its process were killed.
  void kill(int rank) {
    sinew::ShutdownOptions at_once;
    at_once.graceful = false;
    worker(rank).shutdown(at_once);
  }
  void start_again(int rank) {
    replace(rank, sinew::init_rpc(worker_options_[static_cast<std::size_t>(rank)]));
  }
  std::vector<double> rewards_of(int episodes) {
    std::vector<double> rewards;
    for (int i = 0; i < episodes; ++i) {
      agent_->run_episode(self_);
      rewards.push_back(agent_->finish_episode().last_reward);
    }
    return rewards;
  }

  sinew::testing::Faults* faults_ = nullptr;
  std::shared_ptr<Agent> agent_;
  sinew::RRef<Agent> self_;
  std::vector<std::string> told_;

 private:
  std::array<sinew::WorkerOptions, 4> worker_options_;
};

}  // namespace rl
