// Parameter servers are killed at any moment and come back from their checkpoint, while trainers in
// other processes go on. What was acknowledged is there in the end, once. The test leads, with
// rank 0.

#include <algorithm>
#include <csignal>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/training_processes.h"

using sinew::RRef;
using sinew::optim::Checkpoint;
using sinew::optim::DistributedOptimizer;
using testoptim::Table;

namespace {

constexpr int kKills = 3;

class Failover : public testoptim::TrainingProcesses {
 protected:
  static constexpr std::int64_t kSteps = 6 * kTrainers * kStepsOfARound;

  void TearDown() override {
    optimizer_ = {};
    tables_.clear();
    TrainingProcesses::TearDown();
  }

  /// Which of these moments is one to kill a server at, and whether whoever is there waits for it.
  struct Kill {
    std::int64_t moment = 0;
    int rank = 1;
    bool is_waited_for = false;
  };
  void reached() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++moment_;
    if (kills_.empty() || moment_ < kills_.front().moment) return;
    const Kill next = kills_.front();
    std::future<void>& killer = killers_[next.rank];
    if (killer.valid()) return;  // later: it is not even there again
    kills_.erase(kills_.begin());
    killer =
        std::async(std::launch::async, [killed = &process(next.rank)] { killed->signal(SIGKILL); });
    if (next.is_waited_for) killer.wait();
  }

  void start_if_killed(int rank) {
    std::future<void>* killer = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      killer = &killers_[rank];
      if (!killer->valid()) return;
    }
    killer->wait();
    start(rank);
    const std::lock_guard<std::mutex> lock(mutex_);
    *killer = {};
  }

  /// Starts the servers that are dead, and makes what they had anew.
  void recover() {
    for (int attempt = 0;; ++attempt) {
      for (int rank = 1; rank <= kServers; ++rank) start_if_killed(rank);
      try {
        restore();
        return;
      } catch (const sinew::RpcError& error) {
        // It was killed again, or this worker had not noticed yet.
        ASSERT_EQ(error.code(), sinew::ErrorCode::kUnavailable) << error.what();
        ASSERT_LT(attempt, 100);
      }
    }
  }
  void restore() {
    tables_.resize(kServers);
    std::vector<RRef<at::Tensor>> parameters;
    for (int rank = 1; rank <= kServers; ++rank) {
      RRef<Table>& table = tables_[static_cast<std::size_t>(rank - 1)];
      if (!table.valid() || !table.peer().alive()) {
        table = wait_for(rank).remote<Table>(kSteps);
      }
      parameters.push_back(table.call<&Table::parameter>());
    }
    if (!optimizer_.valid()) {
      optimizer_ = DistributedOptimizer(self_, parameters, testoptim::rate_of_one());
      optimizer_.save("run", "0");
    } else {
      optimizer_ = optimizer_.rebind(parameters, testoptim::rate_of_one());
      reached();
    }
    done_ = std::stol(optimizer_.load("run").note);
    loaded_.push_back(done_);
  }

  void round() {
    if (saving_.valid()) saving_.take();
    saving_ = optimizer_.save_async("run", std::to_string(done_));
    reached();
    const auto failures =
        pick_all(tables_, optimizer_, static_cast<std::int64_t>(loaded_.size()) - 1, done_);
    if (!failures.empty()) throw failures.back();
    done_ += kTrainers * kStepsOfARound;
  }

  std::vector<RRef<Table>> tables_;
  DistributedOptimizer optimizer_;
  sinew::Future<Checkpoint> saving_;
  std::int64_t done_ = 0;
  // By run.
  std::vector<std::int64_t> loaded_;

  std::mutex mutex_;
  // By rank, once somebody kills it.
  std::map<int, std::future<void>> killers_;
  std::int64_t moment_ = 0;
  std::vector<Kill> kills_;
};

TEST_F(Failover, WhatWasAcknowledgedIsThereOnce) {
  const std::uint32_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  for (int i = 0; i < kKills; ++i) {
    // A step has two moments. The last ones are left, so that somebody notices.
    kills_.push_back({1 + static_cast<std::int64_t>(random() % (2 * kSteps * 3 / 4)),
                      1 + static_cast<int>(random() % kServers), random() % 2 == 0});
  }
  std::sort(kills_.begin(), kills_.end(),
            [](const Kill& a, const Kill& b) { return a.moment < b.moment; });
  recover();
  while (done_ < kSteps) {
    try {
      round();
    } catch (const sinew::RpcError& error) {
      ASSERT_LE(loaded_.size(), 1U + kKills) << "nobody was killed: " << error.what();
      std::cout << "step " << done_ << ": " << error.what() << std::endl;
      saving_ = {};
      recover();
    }
  }
  EXPECT_TRUE(kills_.empty());
  EXPECT_GT(loaded_.size(), 1U);
  EXPECT_EQ(testoptim::check_history(history(), loaded_, kSteps), "");
  for (const RRef<Table>& table : tables_) {
    const at::Tensor value = table.call<&Table::value>();
    EXPECT_TRUE(value.equal(at::full({kSteps}, -1.0))) << value;
  }
}

}  // namespace
