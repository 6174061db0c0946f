// Servers, standbys and trainers that are lost.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/ps_rnn/corpus.h"
#include "sinew/examples/ps_rnn/standbys.h"
#include "sinew/examples/ps_rnn/training.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/examples/ps_rnn_team.h"

namespace ps_rnn {
namespace {

using sinew::internal::LocalOptimizer;
using sinew::testing::calls;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::replies;
using ::testing::HasSubstr;

class PsRnnLossesTest : public PsRnnTeam {
 protected:
  /// A worker that was killed, as a server or what stands by for one.
  void start_again(sinew::testing::Cluster& cluster, int rank) const {
    cluster.start("worker" + std::to_string(rank));
    worker(rank).publish(kReady, std::make_shared<std::string>());
    if (options_.checkpoint.empty()) return;
    sinew::optim::serve_checkpoints(worker(rank), options_.checkpoint.string());
  }
};

void move_apart(const Training& training, const std::vector<double>& values) {
  ASSERT_EQ(training.trainers().size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& trainer = training.trainers()[i];
    std::vector<at::Tensor> lstm;
    for (const at::Tensor& one : trainer.call<&Trainer::parameters>()) {
      lstm.push_back(at::full_like(one, values[i]));
    }
    trainer.call<&Trainer::set_parameters>(lstm);
  }
}

/// All numbers of all LSTMs.
void expect_lstms_are(const Training& training, double value) {
  for (const auto& trainer : training.trainers()) {
    for (const at::Tensor& one : trainer.call<&Trainer::parameters>()) {
      EXPECT_TRUE(one.equal(at::full_like(one, value))) << trainer.owner_name() << ": " << one;
    }
  }
}

void expect_lstms_are_one(const Training& training) {
  const auto first = training.trainers().front().call<&Trainer::parameters>();
  for (const auto& trainer : training.trainers()) {
    const auto other = trainer.call<&Trainer::parameters>();
    ASSERT_EQ(other.size(), first.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(other[i].equal(first[i])) << trainer.owner_name() << ": parameter " << i;
    }
  }
}

// With a learning rate that changes nothing, so that a round does no more than that.
TEST_P(PsRnnLossesTest, LstmsMeetInTheMiddleOfThoseThatAreLeft) {
  options_.lr = 1e-12;
  sinew::testing::Cluster& cluster = start_team(3, 1);
  serve_checkpoints(folder_ / "checkpoints", 4);
  {
    Training training = make_training();
    expect_lstms_are_one(training);
    training.begin_epoch(1);
    move_apart(training, {1, 2, 6});
    training.round(1);
    expect_lstms_are(training, 3);
    training.begin_checkpoint();
    training.finish_checkpoint();
    const std::int64_t words = training.evaluate().words;
    move_apart(training, {1, 2, 6});
    cluster.kill("worker2");
    training.recover(error_of([&] { training.round(1); }));
    ASSERT_EQ(training.trainers().size(), 2U);
    expect_lstms_are(training, 3);
    move_apart(training, {1, 2});
    training.round(1);
    expect_lstms_are(training, 1.5);
    EXPECT_EQ(training.evaluate().words, words) << "the others read its share of this text too";
    // Each of the two has 4 of its own left, and the third one had made one of its.
    EXPECT_EQ(training.round(2 * kSteps).words, 13 * options_.batch * options_.bptt);
    cluster.start("worker2");
  }
}

TEST_P(PsRnnLossesTest, ATrainerThatWasLostBeforeARestartGetsTheLstmOfTheOthers) {
  for (const bool is_lost : {false, true}) {
    SCOPED_TRACE(is_lost);
    sinew::testing::Cluster& cluster = start_team(3, 1);
    serve_checkpoints(folder_ / std::to_string(is_lost), 4);
    {
      Training training = make_training();
      training.begin_epoch(1);
      training.begin_checkpoint();
      training.finish_checkpoint();
      if (is_lost) {
        cluster.kill("worker1");
        training.recover(error_of([&] { training.round(1); }));
      }
      training.round(1);
      move_apart(training, std::vector<double>(is_lost ? 2 : 3, 0.25));
      training.save(1);
    }
    if (is_lost) cluster.start("worker1");
    EXPECT_EQ(examples::read_file(options_.checkpoint / "latest"),
              is_lost ? "1 without 1\n" : "1\n");
    start_team(3, 1);
    serve_checkpoints(options_.checkpoint, 4);
    Training training = make_training();
    EXPECT_EQ(training.load(), 1);
    ASSERT_EQ(training.trainers().size(), 3U);
    expect_lstms_are(training, 0.25);
  }
}

// A server dies after it has applied a step that it has not acknowledged; the other one has applied
// it too, and the LSTM. The standby has it, or has not: then it gets gradients of another pass,
// through what has changed meanwhile.
TEST_P(PsRnnLossesTest, AStepInWhichAServerIsLostIsMadeOnce) {
  std::vector<at::Tensor> values_of_whole;
  {
    start_team(1, 2);
    Training whole = make_training();
    whole.begin_epoch(1);
    whole.round(1);
    values_of_whole = values_of(whole);
  }
  for (const bool standby_has_it : {true, false}) {
    SCOPED_TRACE(standby_has_it);
    sinew::testing::Cluster& cluster = start_team_with_standbys();
    {
      Training training = make_training();
      training.begin_epoch(1);
      if (standby_has_it) {
        cluster.faults().drop(replies<&LocalOptimizer::step>().at("worker1").first(1));
      } else {
        cluster.faults().drop(calls<&LocalOptimizer::follow_step>().at("worker3").first(1));
      }
      auto round = std::async(std::launch::async, [&] { return training.round(1); });
      const auto steps_of = [&](int rank) { return worker(rank).counters()["optim.steps"]; };
      ASSERT_TRUE(eventually([&] {
        return steps_of(0) == 1 && steps_of(1) == 1 && steps_of(2) == 1 &&
               steps_of(3) == (standby_has_it ? 1 : 0);
      }));
      cluster.kill("worker1");
      EXPECT_EQ(round.get().words, options_.batch * options_.bptt);
      EXPECT_EQ(training.failovers().count, 1);
      EXPECT_EQ(training.failovers().lost_steps, 0);
      for (const int rank : {0, 2, 3}) EXPECT_EQ(steps_of(rank), 1) << "worker" << rank;
      const std::vector<at::Tensor> values = values_of(training);
      ASSERT_EQ(values.size(), values_of_whole.size());
      // The LSTM's are behind the embedding and the decoder's two.
      for (std::size_t i = standby_has_it ? 0 : 3; i < values.size(); ++i) {
        EXPECT_TRUE(values[i].equal(values_of_whole[i])) << "parameter " << i;
      }
    }
    cluster.start("worker1");
  }
}

// With a learning rate that changes nothing, so that a step that is made again has the same loss.
TEST_P(PsRnnLossesTest, TheLstmRemembersWhatWasBeforeATakeOver) {
  options_.lr = 1e-12;
  std::vector<double> losses;
  start_team(1, 2);
  {
    Training whole = make_training();
    whole.begin_epoch(1);
    for (int round = 0; round < 3; ++round) losses.push_back(whole.round(2).sum);
  }
  sinew::testing::Cluster& cluster = start_team_with_standbys();
  {
    Training training = make_training();
    training.begin_epoch(1);
    EXPECT_EQ(training.round(2).sum, losses[0]);
    cluster.kill("worker1");
    for (int round = 1; round < 3; ++round) EXPECT_EQ(training.round(2).sum, losses[round]);
    EXPECT_EQ(training.failovers().count, 1);
    cluster.start("worker1");
  }
}

TEST_P(PsRnnLossesTest, AServerThatIsLostBetweenTwoEpochsIsReplacedBeforeTheNextStep) {
  sinew::testing::Cluster& cluster = start_team_with_standbys();
  serve_checkpoints(folder_ / "checkpoints", 5);
  {
    Training training = make_training();
    training.begin_epoch(1);
    EXPECT_EQ(training.round(kSteps).words, kSteps * options_.batch * options_.bptt);
    training.begin_epoch(2);
    // Its part of a checkpoint is lost with it.
    cluster.faults().drop(calls<&LocalOptimizer::finish_save>().at("worker1").first(1));
    training.begin_checkpoint();
    cluster.kill("worker1");
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(training.round(2).words, 2 * options_.batch * options_.bptt);
    }
    training.begin_checkpoint();
    training.finish_checkpoint();
    EXPECT_EQ(training.failovers().count, 1);
    cluster.start("worker1");
  }
}

// Whoever of a pair is lost stands by for the other one once it is back.
TEST_P(PsRnnLossesTest, AStandbyThatComesBackStandsByAgain) {
  sinew::testing::Cluster& cluster = start_team_with_standbys();
  {
    Training training = make_training();
    training.begin_epoch(1);
    const auto are_there = [&](std::int64_t standbys) {
      return eventually([&] {
        training.round(0);
        return training.standbys() == standbys;
      });
    };
    ASSERT_TRUE(are_there(2));
    cluster.kill("worker3");
    ASSERT_TRUE(are_there(1));
    start_again(cluster, 3);
    for (const int lost : {1, 3}) {
      ASSERT_TRUE(are_there(2));
      cluster.kill("worker" + std::to_string(lost));
      EXPECT_EQ(training.round(2).words, 2 * options_.batch * options_.bptt);
      start_again(cluster, lost);
    }
    EXPECT_EQ(training.failovers().count, 2);
    EXPECT_EQ(training.failovers().lost_steps, 0);
  }
}

TEST_P(PsRnnLossesTest, AllGoBackToTheLastCheckpointOfWhichAllIsKnownToBeWritten) {
  sinew::testing::Cluster& cluster = start_team(1, 2);
  serve_checkpoints(folder_ / "checkpoints", 3);
  {
    Training training = make_training();
    training.begin_epoch(1);
    training.round(2);
    training.begin_checkpoint();
    training.finish_checkpoint();
    const std::vector<at::Tensor> values = values_of(training);
    const Loss loss = training.round(2);
    // All parts of the next one are soon there too, and nobody has said so.
    training.begin_checkpoint();
    ASSERT_TRUE(eventually([&] {
      const auto files = std::filesystem::recursive_directory_iterator(options_.checkpoint);
      return std::count_if(begin(files), end(files), [](const auto& file) {
               return file.path().extension() == ".manifest";
             }) == 6;
    }));
    cluster.kill("worker2");
    start_again(cluster, 2);
    training.recover(error_of([&] { training.round(2); }));
    EXPECT_EQ(training.failovers().lost_steps, 2);
    const std::vector<at::Tensor> restored = values_of(training);
    ASSERT_EQ(restored.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(restored[i].equal(values[i])) << "parameter " << i;
    }
    EXPECT_EQ(training.round(2).sum, loss.sum) << "also what the LSTM remembered is that of then";
    EXPECT_EQ(training.round(kSteps).words, 2 * options_.batch * options_.bptt);
  }
}

// The trainer that is asked last need not be the one whose step was the last.
TEST_P(PsRnnLossesTest, ACheckpointHasTheStepsOfAllTrainers) {
  options_.history = folder_ / "history";
  sinew::testing::Cluster& cluster = start_team(2, 1);
  serve_checkpoints(folder_ / "checkpoints", 3);
  {
    Training training = make_training();
    training.begin_epoch(1);
    const auto first =
        cluster.faults().hold(calls<&LocalOptimizer::step>().at("worker2").by("worker0").first(1));
    auto round = std::async(std::launch::async, [&] { return training.round(1); });
    first.wait_for_hits(1);
    ASSERT_TRUE(eventually([&] { return worker(2).counters()["optim.steps"] == 1; }));
    first.release();
    round.get();
    training.begin_checkpoint();
    training.finish_checkpoint();
    cluster.kill("worker2");
    start_again(cluster, 2);
    training.recover(error_of([&] { training.round(1); }));
    training.round(1);
  }
  const std::string history = examples::read_file(options_.history);
  EXPECT_THAT(history, HasSubstr("\"id\": \"load1\""));
  EXPECT_THAT(history, HasSubstr("\"result\": \"ok\", \"run\": 1, \"versions\": {\"server0\": 2}"))
      << "what all have gone back to";
  EXPECT_THAT(history, HasSubstr("\"run\": 1, \"versions\": {\"server0\": 3}")) << history;
}

// A checkpoint would have all go back, and there need not be one.
TEST_P(PsRnnLossesTest, AStandbyThatIsCatchingUpIsWaitedFor) {
  sinew::testing::Cluster& cluster = start_team_with_standbys();
  const std::int64_t tokens = load_corpus(options_.data, options_.corpus).tokens();
  const ModelSettings settings = model_settings(options_, tokens);
  const sinew::optim::Options optimizer = optimizer_options("sgd", 1);
  Served served;
  served.model = ServerModel::make(servers_, settings);
  served.optimizer = {worker(0), served.model.parameters(), optimizer};
  Standbys standbys(worker(0), {{"worker1", "worker3"}, {"worker2", "worker4"}}, settings,
                    optimizer, std::chrono::seconds(60));
  const auto snapshot =
      cluster.faults().hold(calls<&LocalOptimizer::follow_snapshot>().at("worker3").first(1));
  ASSERT_TRUE(eventually([&] {
    standbys.look(served);
    return snapshot.hits() == 1;
  }));
  // That one is taken for lost.
  const auto lost = cluster.faults().fail(calls<&EmbeddingTable::begin_round>().at("worker1"));
  auto taking_over =
      std::async(std::launch::async, [&] { return standbys.take_over(served, 1, 0); });
  lost.wait_for_hits(1);
  snapshot.release();
  EXPECT_TRUE(taking_over.get());
  EXPECT_EQ(served.model.embedding[0].module_rref().owner_name(), "worker3");
  EXPECT_EQ(served.optimizer.owners()[0].name, "worker3");
}

SINEW_INSTANTIATE_CLUSTER_TEST(PsRnnLossesTest);

}  // namespace
}  // namespace ps_rnn
