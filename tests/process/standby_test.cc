// A parameter server is killed at any moment, and another process takes over, while trainers in
// other processes go on. What was acknowledged is there in the end, once, and nobody goes back. The
// test leads, with rank 0.

#include <algorithm>
#include <csignal>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/optim/standby.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/process/training_processes.h"
#include "sinew/tests/support/cluster.h"

using sinew::RRef;
using sinew::optim::DistributedOptimizer;
using sinew::optim::Standby;
using testoptim::Table;

namespace {

/// When the owner is killed.
enum class Moment {
  /// Between the backward pass of a trainer and its step.
  kBeforeAStep,
  /// At any time of a step.
  kDuringAStep,
  /// When it has applied a step that it has not acknowledged, since the standby stands still.
  kBeforeAnAcknowledgement,
  /// While a checkpoint is written.
  kWhileSaving,
  /// When its standby has not caught up: there is none that can take over.
  kWhileCatchingUp,
};

/// What the trainer does that has come to the moment of a kill.
enum class AtTheKill { kWaits, kGoesOn };

class StandbyFailover : public testoptim::TrainingProcesses {
 protected:
  static constexpr std::int64_t kRounds = 14;
  static constexpr std::int64_t kSteps = kRounds * kTrainers * kStepsOfARound;

  void SetUp() override {
    TrainingProcesses::SetUp();
    owner_.table = make_table(owner_.rank);
    optimizer_ = DistributedOptimizer(self_, {owner_.table.call<&Table::parameter>()},
                                      testoptim::rate_of_one());
    optimizer_.save("run", "0");
  }
  void TearDown() override {
    if (killer_.valid()) killer_.wait();
    saving_ = {};
    standby_ = {};
    optimizer_ = {};
    owner_.table = {};
    spare_.table = {};
    TrainingProcesses::TearDown();
  }

  RRef<Table> make_table(int rank) { return wait_for(rank).remote<Table>(kSteps); }

  void kill_owner_at(std::int64_t moment, std::function<void()> kill, AtTheKill trainer,
                     std::function<void()> prepare = nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    moment_ = 0;
    kill_at_ = moment;
    kill_ = std::move(kill);
    prepare_ = std::move(prepare);
    trainer_ = trainer;
  }
  void reached() override {
    std::shared_future<void> killed;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (kill_ == nullptr || ++moment_ < kill_at_) return;
      if (prepare_ != nullptr) prepare_();
      killer_ = std::async(std::launch::async, std::exchange(kill_, nullptr)).share();
      if (trainer_ == AtTheKill::kGoesOn) return;
      killed = killer_;
    }
    killed.wait();
  }
  void kill_owner() { process(owner_.rank).signal(SIGKILL); }
  /// A trainer waits, before a step of its own.
  void hold_back_acknowledgements() {
    process(spare_.rank).signal(SIGSTOP);
    applied_before_ = applied();
  }
  void kill_owner_before_an_acknowledgement() {
    EXPECT_TRUE(sinew::testing::eventually([&] { return applied() > applied_before_; }));
    kill_owner();
    process(spare_.rank).signal(SIGCONT);
  }
  double applied() const { return -owner_.table.call<&Table::value>().sum().item<double>(); }

  void plan(Moment moment, std::mt19937& random) {
    const auto at = 1 + static_cast<std::int64_t>(random() % (kTrainers * kStepsOfARound));
    switch (moment) {
      case Moment::kBeforeAStep:
        return kill_owner_at(
            at, [this] { kill_owner(); }, AtTheKill::kWaits);
      case Moment::kDuringAStep:
        return kill_owner_at(
            at, [this] { kill_owner(); }, AtTheKill::kGoesOn);
      case Moment::kBeforeAnAcknowledgement:
        return kill_owner_at(
            at, [this] { kill_owner_before_an_acknowledgement(); }, AtTheKill::kGoesOn,
            [this] { hold_back_acknowledgements(); });
      case Moment::kWhileSaving:
      case Moment::kWhileCatchingUp:
        return kill_owner_at(
            1, [this] { kill_owner(); }, AtTheKill::kGoesOn);
    }
  }

  /// Begins to have the other server stand by.
  void begin_standby() {
    adding_ = std::async(std::launch::async, [this] {
      spare_.table = make_table(spare_.rank);
      return Standby(optimizer_, name_of(owner_.rank), {spare_.table.call<&Table::parameter>()},
                     testoptim::rate_of_one());
    });
  }
  void finish_standby() {
    if (!adding_.valid()) return;
    try {
      standby_ = adding_.get();
    } catch (const sinew::RpcError& error) {
      std::cout << "no standby: " << error.what() << std::endl;
    }
  }

  /// Makes the steps of all trainers, however often the owner is killed meanwhile.
  void round() {
    bool is_done = work();
    finish_standby();
    // It may have been killed when nobody needed it any more.
    while (!is_done || wait_for_killer()) {
      if (!recover()) return;
      is_done = work();
    }
    done_ += kTrainers * kStepsOfARound;
  }
  /// Has all trainers make what is left of their steps of this round; whether it went well.
  bool work() {
    const std::int64_t run = static_cast<std::int64_t>(loaded_.size()) - 1;
    const auto failures = pick_all({owner_.table}, optimizer_, run, done_);
    for (const sinew::RpcError& failure : failures) std::cout << failure.what() << std::endl;
    return failures.empty();
  }
  bool wait_for_killer() {
    std::shared_future<void> killer;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::swap(killer, killer_);
    }
    if (!killer.valid()) return false;
    killer.wait();
    return true;
  }

  /// The standby takes over, or there is none: then all go back to the last checkpoint, and the
  /// result is false.
  bool recover() {
    wait_for_killer();
    saving_ = {};
    const bool has_standby = standby_.valid();
    if (has_standby) {
      optimizer_ = sinew::optim::take_over(optimizer_, {standby_});
      std::swap(owner_, spare_);
      start(spare_.rank);
    } else {
      start(owner_.rank);
      // Checkpoints have the name of the first owner.
      if (owner_.rank != 1) std::swap(owner_, spare_);
      owner_.table = make_table(owner_.rank);
      optimizer_ =
          optimizer_.rebind({owner_.table.call<&Table::parameter>()}, testoptim::rate_of_one());
      done_ = std::stol(optimizer_.load("run").note);
      loaded_.push_back(done_);
    }
    standby_ = {};
    return has_standby;
  }

  struct Server {
    int rank = 0;
    RRef<Table> table;
  };

  Server owner_{1, {}};
  Server spare_{2, {}};
  DistributedOptimizer optimizer_;
  Standby standby_;
  std::future<Standby> adding_;
  sinew::Future<sinew::optim::Checkpoint> saving_;
  std::int64_t done_ = 0;
  // By run.
  std::vector<std::int64_t> loaded_ = {0};
  std::mutex mutex_;
  std::int64_t moment_ = 0;
  std::int64_t kill_at_ = 0;
  std::function<void()> kill_;
  std::function<void()> prepare_;
  double applied_before_ = 0;
  AtTheKill trainer_ = AtTheKill::kGoesOn;
  std::shared_future<void> killer_;
};

TEST_F(StandbyFailover, WhatWasAcknowledgedIsThereOnceAndNobodyGoesBack) {
  const std::uint32_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  std::vector<Moment> moments = {Moment::kBeforeAStep, Moment::kDuringAStep,
                                 Moment::kBeforeAnAcknowledgement, Moment::kWhileSaving,
                                 Moment::kWhileCatchingUp};
  std::shuffle(moments.begin(), moments.end(), random);
  int rounds = 0;
  while (done_ < kSteps) {
    ASSERT_LT(++rounds, 3 * kRounds);
    const bool is_catching_up = !standby_.valid();
    const bool is_in_turn =
        !moments.empty() && (moments.back() == Moment::kWhileCatchingUp) == is_catching_up;
    if (is_catching_up) {
      // Checkpoints are of the owner, which may be another one now.
      optimizer_.save("run", absl::StrCat(done_));
      begin_standby();
    }
    if (is_in_turn) {
      std::cout << "step " << done_ << ", moment " << static_cast<int>(moments.back()) << std::endl;
      plan(moments.back(), random);
      if (moments.back() == Moment::kWhileSaving) {
        saving_ = optimizer_.save_async("run", absl::StrCat(done_));
      }
      moments.pop_back();
    }
    round();
  }
  EXPECT_TRUE(moments.empty());
  EXPECT_LE(loaded_.size(), 2U) << "only where no standby had caught up";
  EXPECT_EQ(testoptim::check_history(history(), loaded_, kSteps), "");
  const at::Tensor value = owner_.table.call<&Table::value>();
  EXPECT_TRUE(value.equal(at::full({kSteps}, -1.0))) << value;
}

}  // namespace
