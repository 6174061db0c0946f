#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/optim/history.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace testoptim {

/// Parameter servers (ranks 1 and 2) and trainers (3 and 4) in processes of their own. The test
/// leads, as worker0, and may kill and start them.
class TrainingProcesses : public ::testing::Test {
 protected:
  static constexpr int kServers = 2;
  static constexpr int kTrainers = 2;
  // Of each trainer.
  static constexpr std::int64_t kStepsOfARound = 8;

  void SetUp() override {
    on_reached([this] { reached(); });
    sinew::WorkerOptions options;
    options.name = name_of(0);
    add_methods(options.methods);
    options.methods.add<&testoptim::reached>();
    options.init_method = "file://" + folder_.file("meet");
    self_ = sinew::init_rpc(options);
    std::filesystem::create_directories(folder_.file("checkpoints"));
    processes_.resize(1 + kServers + kTrainers);
    for (int rank = 1; rank <= kServers + kTrainers; ++rank) start(rank);
    for (int rank = kServers + 1; rank <= kServers + kTrainers; ++rank) {
      pickers_.push_back(wait_for(rank).remote<Picker>());
    }
  }
  void TearDown() override {
    pickers_.clear();
    if (self_.valid()) self_.shutdown({false, std::chrono::seconds(60), false});
  }

  /// A trainer has come to where something may happen: see Picker. Any thread.
  virtual void reached() = 0;

  static std::string name_of(int rank) { return absl::StrCat("worker", rank); }
  sinew::Peer wait_for(int rank) const {
    return self_.wait_for(name_of(rank), std::chrono::minutes(2));
  }
  /// A new process takes the place of the one that was there.
  void start(int rank) {
    auto process =
        std::make_unique<sinew::testing::ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    ASSERT_THAT(process->ask(absl::StrCat("start name=", name_of(rank), " rank=", rank,
                                          " init=file://", folder_.file("meet"),
                                          " checkpoints=", folder_.file("checkpoints"))),
                ::testing::StartsWith("ok "));
    const std::lock_guard<std::mutex> lock(mutex_);
    processes_[static_cast<std::size_t>(rank)] = std::move(process);
  }
  /// Until the next start().
  sinew::testing::ChildProcess& process(int rank) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return *processes_[static_cast<std::size_t>(rank)];
  }

  /// Has all trainers make their steps of a round, from `first` on, and waits for all of them. What
  /// they failed with.
  std::vector<sinew::RpcError> pick_all(const std::vector<sinew::RRef<Table>>& tables,
                                        const sinew::optim::DistributedOptimizer& optimizer,
                                        std::int64_t run, std::int64_t first) const {
    std::vector<sinew::Future<void>> running;
    for (const sinew::RRef<Picker>& picker : pickers_) {
      running.push_back(picker.async<&Picker::pick>(tables, optimizer, run, first, kStepsOfARound));
      first += kStepsOfARound;
    }
    std::vector<sinew::RpcError> failures;
    for (const sinew::Future<void>& one : running) {
      try {
        one.wait();
      } catch (const sinew::RpcError& error) {
        failures.push_back(error);
      }
    }
    return failures;
  }
  std::vector<Acknowledged> history() const {
    std::vector<Acknowledged> all;
    for (const sinew::RRef<Picker>& picker : pickers_) {
      for (Acknowledged& one : picker.call<&Picker::history>()) all.push_back(std::move(one));
    }
    return all;
  }

  const sinew::testing::TemporaryFolder folder_;
  sinew::Worker self_;

 private:
  std::vector<sinew::RRef<Picker>> pickers_;
  mutable std::mutex mutex_;
  // By rank.
  std::vector<std::unique_ptr<sinew::testing::ChildProcess>> processes_;
};

}  // namespace testoptim
