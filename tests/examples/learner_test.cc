// The training and what actors call, in one process.

#include "sinew/examples/actor_learner/learner/training.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/actor_learner/actor/player.h"
#include "sinew/examples/common/files.h"
#include "sinew/optim/publication.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

namespace actor_learner {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;

Played played(Player& player, int steps) {
  std::vector<Step> all;
  for (int i = 0; i < steps; ++i) all.push_back(player.step());
  return to_played(all);
}

TEST(LearnerService, CountsAndReportsWhatComes) {
  LearnerService service(100);
  Player player(1);
  EXPECT_FALSE(service.await_transitions(1, std::chrono::milliseconds(1)));
  service.push(played(player, 150));
  EXPECT_EQ(service.transitions(), 150) << "also those that the buffer has no room for";
  service.push(played(player, 60));
  EXPECT_TRUE(service.await_transitions(210, std::chrono::milliseconds(1)));
  EXPECT_THAT(service.take_returns(), SizeIs(1));
  EXPECT_THAT(service.take_returns(), SizeIs(0));
}

TEST(LearnerService, TellsOfTheEnd) {
  LearnerService service(100);
  Player player(1);
  EXPECT_FALSE(service.push(played(player, 1)).finished);
  service.finish();
  EXPECT_TRUE(service.push(played(player, 1)).finished);
}

TEST(LearnerService, RefusesWhatNobodyHasPlayed) {
  LearnerService service(100);
  Player player(1);
  Played wrong = played(player, 3);
  wrong.returns.push_back(std::numeric_limits<double>::infinity());
  EXPECT_THROW(service.push(wrong), std::invalid_argument);
  wrong.returns.assign(4, -1.0);
  EXPECT_THROW(service.push(wrong), std::invalid_argument);
  wrong = played(player, 3);
  wrong.transitions.rewards = at::zeros({2});
  EXPECT_THROW(service.push(wrong), std::invalid_argument);
  wrong.transitions = {};
  EXPECT_THROW(service.push(wrong), std::invalid_argument);
  EXPECT_EQ(service.transitions(), 0);
}

class TrainingTest : public testing::Test {
 protected:
  TrainingTest() {
    options_.output = folder_ / "output";
    options_.checkpoint = folder_ / "checkpoints";
    options_.batch = 8;
    options_.warm_up = 10;
    options_.updates = 40;
    options_.goal = 0;
    options_.publish_every = 10;
    options_.evaluate_every = 20;
    options_.checkpoint_every = 20;
    options_.evaluation_episodes = 2;
  }

  std::string csv() const { return examples::read_file(folder_ / "output" / "returns.csv"); }

  const sinew::testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  Options options_;
  std::ostringstream log_;
  Player player_{1};
};

TEST_F(TrainingTest, MakesNoMoreUpdatesThanTransitionsAllow) {
  options_.updates_per_transition = 2;
  Training training(options_, log_);
  sinew::testing::Cluster cluster({"learner", "actor"}, sinew::MethodTable());
  training.publish_at(cluster.worker("learner"));
  sinew::optim::Subscription weights(cluster.worker("actor"), "learner/weights");
  training.service()->push(played(player_, 10 + 15));
  std::thread run([&] { EXPECT_EQ(training.run(), Outcome::kNotSolved); });
  // It makes 30 updates and waits; the first ten are the fourth version, with that of the start.
  const std::uint64_t start = training.version() >> kRunBits << kRunBits;
  player_.use(*weights.wait_for(start + 4));
  EXPECT_EQ(log_.str().find("Update 40"), std::string::npos);
  training.service()->push(played(player_, 5));
  run.join();
  EXPECT_THAT(log_.str(), HasSubstr("Update 40"));
}

TEST_F(TrainingTest, StopsWhileItWaits) {
  Training training(options_, log_);
  std::thread run([&] { EXPECT_EQ(training.run(), Outcome::kStopped); });
  training.stop();
  run.join();
}

TEST_F(TrainingTest, EndsWhenItIsSolved) {
  options_.goal = -10'000;
  Training training(options_, log_);
  training.service()->push(played(player_, 100));
  EXPECT_EQ(training.run(), Outcome::kSolved);
  EXPECT_THAT(log_.str(), HasSubstr("Update 20"));
  EXPECT_EQ(log_.str().find("Update 40"), std::string::npos);
}

TEST_F(TrainingTest, GoesOnWhereItWas) {
  std::vector<std::uint64_t> versions;
  {
    Training training(options_, log_);
    const sinew::testing::Cluster cluster({"learner"}, sinew::MethodTable());
    training.publish_at(cluster.worker("learner"));
    versions.push_back(training.version());
    training.service()->push(played(player_, 60));
    training.run();
    versions.push_back(training.version());
  }
  const std::string before = csv();
  options_.updates = 60;
  Training training(options_, log_);
  EXPECT_THAT(log_.str(), HasSubstr("40 updates, 60 transitions"));
  EXPECT_EQ(training.service()->transitions(), 60);
  // Nobody tells it what there was.
  const sinew::testing::Cluster cluster({"learner"}, sinew::MethodTable());
  training.publish_at(cluster.worker("learner"));
  versions.push_back(training.version());
  training.service()->push(played(player_, 10));
  EXPECT_EQ(training.run(), Outcome::kNotSolved);
  versions.push_back(training.version());
  for (std::size_t i = 1; i < versions.size(); ++i) {
    EXPECT_LT(versions[i - 1], versions[i]) << version_text(versions[i]);
  }
  EXPECT_EQ(csv().substr(0, before.size()), before) << "the curve goes on";
  EXPECT_THAT(csv(), HasSubstr("\n60,"));
}

// One that is killed in the middle and one that is not come to the same.
TEST_F(TrainingTest, IsTheUninterruptedOneToTheLastDigit) {
  const Played all = played(player_, 100);
  Training whole(options_, log_);
  whole.service()->push(all);
  whole.run();
  options_.checkpoint = folder_ / "other";
  options_.updates = 20;
  {
    Training first(options_, log_);
    first.service()->push(all);
    first.run();
  }
  options_.updates = 40;
  Training second(options_, log_);
  second.run();
  const std::vector<at::Tensor> expected = whole.policy().parameters();
  const std::vector<at::Tensor> found = second.policy().parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(expected[i].equal(found[i])) << i;
}

TEST_F(TrainingTest, UsesTheCheckpointBeforeADamagedOne) {
  {
    Training training(options_, log_);
    training.service()->push(played(player_, 60));
    training.run();
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(options_.checkpoint)) files.push_back(entry);
  std::sort(files.begin(), files.end());
  const std::string whole = examples::read_file(files.back());
  examples::write_file(files.back(), whole.substr(0, whole.size() - 100));
  Training training(options_, log_);
  EXPECT_THAT(log_.str(), HasSubstr(files.back().string() + " is damaged"));
  EXPECT_THAT(log_.str(), HasSubstr("Going on from " + files[files.size() - 2].string()));
}

TEST_F(TrainingTest, RefusesWhatIsNoCheckpointOfIts) {
  CheckpointFolder(options_.checkpoint).save("something else");
  EXPECT_THAT([&] { Training training(options_, log_); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot go on from")));
}

}  // namespace
}  // namespace actor_learner
