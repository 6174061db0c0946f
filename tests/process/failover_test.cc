// Parameter servers are killed at any moment and come back from their checkpoint, while trainers in
// other processes go on. What was acknowledged is there in the end, once. The test leads, with
// rank 0.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/optim/history.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"

using sinew::RRef;
using sinew::optim::Checkpoint;
using sinew::optim::DistributedOptimizer;
using sinew::testing::ChildProcess;
using ::testing::StartsWith;
using testoptim::Acknowledged;
using testoptim::Picker;
using testoptim::Table;
using namespace std::chrono_literals;

namespace {

constexpr int kServers = 2;
constexpr int kTrainers = 2;
// Of each trainer.
constexpr std::int64_t kStepsOfARound = 8;
constexpr std::int64_t kSteps = 6 * kTrainers * kStepsOfARound;
constexpr int kKills = 3;

class Failover : public ::testing::Test {
 protected:
  void SetUp() override {
    testoptim::on_reached([this] { reached(); });
    sinew::WorkerOptions options;
    options.name = "worker0";
    testoptim::add_methods(options.methods);
    options.methods.add<&testoptim::reached>();
    options.init_method = "file://" + folder_.file("meet");
    self_ = sinew::init_rpc(options);
    std::filesystem::create_directories(folder_.file("checkpoints"));
    processes_.resize(1 + kServers + kTrainers);
    for (int rank = 1; rank <= kServers + kTrainers; ++rank) start(rank);
    for (int rank = kServers + 1; rank <= kServers + kTrainers; ++rank) {
      pickers_.push_back(self_.wait_for(name_of(rank), 2min).remote<Picker>());
    }
  }
  void TearDown() override {
    pickers_.clear();
    optimizer_ = {};
    tables_.clear();
    if (self_.valid()) self_.shutdown({false, std::chrono::seconds(60), false});
  }

  static std::string name_of(int rank) { return absl::StrCat("worker", rank); }
  void start(int rank) {
    auto process = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    ASSERT_THAT(process->ask(absl::StrCat("start name=", name_of(rank), " rank=", rank,
                                          " init=file://", folder_.file("meet"),
                                          " checkpoints=", folder_.file("checkpoints"))),
                StartsWith("ok "));
    const std::lock_guard<std::mutex> lock(mutex_);
    processes_[static_cast<std::size_t>(rank)] = {std::move(process), {}};
  }

  /// Which of these moments is one to kill a server at, and whether whoever is there waits for it.
  struct Kill {
    std::int64_t moment = 0;
    int rank = 1;
    bool is_waited_for = false;
  };
  void reached() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++moment_;
    if (kills_.empty() || moment_ < kills_.front().moment) return;
    const Kill next = kills_.front();
    Process& one = processes_[static_cast<std::size_t>(next.rank)];
    if (one.killer.valid()) return;  // later: it is not even there again
    kills_.erase(kills_.begin());
    one.killer =
        std::async(std::launch::async, [process = one.process.get()] { process->signal(SIGKILL); });
    if (next.is_waited_for) one.killer.wait();
  }

  bool is_killed(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Process& one = processes_[static_cast<std::size_t>(rank)];
    if (!one.killer.valid()) return false;
    one.killer.wait();
    return true;
  }

  /// Starts the servers that are dead, and makes what they had anew.
  void recover() {
    for (int attempt = 0;; ++attempt) {
      for (int rank = 1; rank <= kServers; ++rank) {
        if (is_killed(rank)) start(rank);
      }
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
        table = self_.wait_for(name_of(rank), 2min).remote<Table>(kSteps);
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
    std::vector<sinew::Future<void>> running;
    std::int64_t first = done_;
    for (const RRef<Picker>& picker : pickers_) {
      running.push_back(picker.async<&Picker::pick>(tables_, optimizer_,
                                                    static_cast<std::int64_t>(loaded_.size()) - 1,
                                                    first, kStepsOfARound));
      first += kStepsOfARound;
    }
    std::exception_ptr failure;
    for (const sinew::Future<void>& one : running) {
      try {
        one.wait();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure != nullptr) std::rethrow_exception(failure);
    done_ = first;
  }

  const sinew::testing::TemporaryFolder folder_;
  sinew::Worker self_;
  std::vector<RRef<Picker>> pickers_;
  std::vector<RRef<Table>> tables_;
  DistributedOptimizer optimizer_;
  sinew::Future<Checkpoint> saving_;
  std::int64_t done_ = 0;
  // By run.
  std::vector<std::int64_t> loaded_;

  struct Process {
    std::unique_ptr<ChildProcess> process;
    /// Once somebody kills it.
    std::future<void> killer;
  };
  std::mutex mutex_;
  // By rank.
  std::vector<Process> processes_;
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
  std::vector<Acknowledged> history;
  for (const RRef<Picker>& picker : pickers_) {
    for (Acknowledged& one : picker.call<&Picker::history>()) history.push_back(std::move(one));
  }
  EXPECT_EQ(testoptim::check_history(history, loaded_, kSteps), "");
  for (const RRef<Table>& table : tables_) {
    const at::Tensor value = table.call<&Table::value>();
    EXPECT_TRUE(value.equal(at::full({kSteps}, -1.0))) << value;
  }
}

}  // namespace
