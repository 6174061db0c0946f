#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sinew/examples/rl/players.h"
#include "sinew/testing/faults.h"
#include "sinew/tests/support/cluster.h"

namespace rl {

/// An agent on worker0, and observers on the others.
class AgentTest : public sinew::testing::ClusterTest {
 protected:
  void make(int observers, const Options& options = {}) {
    const sinew::MethodTable methods = agent_methods().serve<Observer>();
    faults_ = &start(1 + observers, methods, [this](int rank, sinew::WorkerOptions& worker) {
                 worker_options_[static_cast<std::size_t>(rank)] = worker;
               }).faults();
    players_ = std::make_unique<Players>(worker(0), options, [this](const std::string& line) {
      told_.push_back(line);
      if (const auto then = std::exchange(on_told_, nullptr)) then();
    });
    self_ = players_->agent();
  }
  void TearDown() override {
    self_ = {};
    players_.reset();
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
      players_->run_episode();
      rewards.push_back(players_->finish_episode().last_reward);
    }
    return rewards;
  }

  sinew::testing::Faults* faults_ = nullptr;
  std::unique_ptr<Players> players_;
  sinew::RRef<Agent> self_;
  std::vector<std::string> told_;
  /// What happens when a line is told next.
  std::function<void()> on_told_;

 private:
  std::array<sinew::WorkerOptions, 4> worker_options_;
};

}  // namespace rl
