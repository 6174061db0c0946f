#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <memory>
#include <sstream>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/ps_rnn/course.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/support/cluster.h"
#include "torch/optim/adam.h"
#include "torch/optim/sgd.h"

namespace ps_rnn {
namespace {

using sinew::internal::LocalOptimizer;
using sinew::testing::calls;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::replies;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::int64_t kSteps = 6;

/// A text of few words with a grammar: each word says which ones may follow.
std::string some_text() {
  const std::vector<std::string> words = {"the", "king", "sees", "a", "river", "and", "sleeps"};
  std::string text;
  std::uint32_t state = 7;
  std::size_t word = 0;
  for (int line = 0; line < 600; ++line) {
    for (int i = 0; i < 8; ++i) {
      state = state * 1664525 + 1013904223;
      word = (word * 3 + 1 + (state >> 24) % 3) % words.size();
      text += words[word] + " ";
    }
    text += "\n";
  }
  return text;
}

/// The same model in one process, written without any of the example's parts.
class LocalModel {
 public:
  LocalModel(const ModelSettings& settings, const std::vector<at::Tensor>& values)
      : embedding_(torch::nn::EmbeddingOptions(settings.ntoken, settings.ninp)
                       .sparse(settings.sparse_embedding)),
        lstm_(torch::nn::LSTMOptions(settings.ninp, settings.nhid).num_layers(settings.nlayers)),
        decoder_(settings.nhid, settings.ntoken) {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> own = parameters();
    EXPECT_EQ(own.size(), values.size());
    for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(values[i]);
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all = embedding_->parameters();
    for (const at::Tensor& one : decoder_->parameters()) all.push_back(one);
    for (const at::Tensor& one : lstm_->parameters()) all.push_back(one);
    return all;
  }

  at::Tensor loss(const at::Tensor& words, const at::Tensor& targets) {
    at::Tensor output;
    std::tie(output, hidden_) = lstm_->forward(embedding_->forward(words), hidden_);
    hidden_ = {std::get<0>(hidden_).detach(), std::get<1>(hidden_).detach()};
    return at::cross_entropy_loss(decoder_->forward(output).flatten(0, 1), targets.flatten());
  }
  void reset(std::int64_t layers, std::int64_t batch, std::int64_t width) {
    hidden_ = {at::zeros({layers, batch, width}), at::zeros({layers, batch, width})};
  }

 private:
  torch::nn::Embedding embedding_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear decoder_;
  std::tuple<at::Tensor, at::Tensor> hidden_;
};

class PsRnnTest : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) / ("sinew_ps_rnn_" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    examples::write_file(folder_ / "text", some_text());
    options_.data = folder_ / "text";
    options_.corpus.ntoken = 7;  // one of the words is rare enough to be <unk>
    options_.ninp = 6;
    options_.nhid = 5;
    options_.batch = 4;
    options_.bptt = 7;
    options_.dropout = 0;
    options_.optimizer = "sgd";
    options_.max_steps = kSteps;
    options_.epochs = 2;
    options_.round = 4;
    options_.output.clear();
  }
  void TearDown() override {
    finish();
    std::filesystem::remove_all(folder_);
  }

  /// Trainers first, as the ranks of a job are.
  sinew::testing::Cluster& start_team(int trainers, int servers) {
    options_.trainers = trainers;
    options_.servers = servers;
    sinew::MethodTable methods;
    add_trainer_methods(methods);
    add_server_methods(methods);
    sinew::testing::Cluster& cluster = start(trainers + servers, methods);
    trainers_.clear();
    servers_.clear();
    standbys_.clear();
    for (int rank = 0; rank < trainers + servers; ++rank) {
      (rank < trainers ? trainers_ : servers_).push_back(worker(0).peer(rank));
    }
    return cluster;
  }
  /// One trainer and two servers, which worker3 and worker4 mirror.
  sinew::testing::Cluster& start_team_with_standbys() {
    sinew::testing::Cluster& cluster = start_team(1, 4);
    for (int rank = 3; rank < 5; ++rank) {
      worker(rank).publish(kReady, std::make_shared<std::string>());
    }
    standbys_.assign(servers_.begin() + 2, servers_.end());
    servers_.resize(2);
    return cluster;
  }
  Training make_training() const {
    const Corpus corpus = load_corpus(options_.data, options_.corpus);
    return {worker(0), {trainers_, servers_, standbys_}, options_, corpus.tokens()};
  }
  TrainingResult train_all() const {
    std::ostringstream log;
    return train(worker(0), {trainers_, servers_}, options_, log);
  }
  void serve_checkpoints(const std::filesystem::path& root, int workers) {
    std::filesystem::create_directories(root);
    for (int rank = 0; rank < workers; ++rank) {
      sinew::optim::serve_checkpoints(worker(rank), root.string());
    }
    options_.checkpoint = root;
  }

  std::filesystem::path folder_;
  Options options_;
  std::vector<sinew::Peer> trainers_;
  std::vector<sinew::Peer> servers_;
  std::vector<sinew::Peer> standbys_;
};

/// In the order of LocalModel::parameters(); the shards of the embedding are put together.
std::vector<at::Tensor> values_of(const Training& training) {
  std::vector<at::Tensor> values;
  for (const auto& parameter : training.servers().parameters()) {
    values.push_back(parameter.to_here().detach().clone());
  }
  const std::size_t shards = training.servers().embedding.size();
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < shards; ++i) rows += values[i].size(0);
  const at::Tensor table = at::empty({rows, values[0].size(1)});
  for (std::size_t i = 0; i < shards; ++i) {
    table.slice(0, static_cast<std::int64_t>(i), rows, static_cast<std::int64_t>(shards))
        .copy_(values[i]);
  }
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(shards));
  values.insert(values.begin(), table);
  for (const at::Tensor& one : sinew::rpc_sync<&Trainer::parameters>(training.trainers().front())) {
    values.push_back(one.clone());
  }
  return values;
}

/// The same batches as a trainer with the whole text.
struct Batches {
  Batches(const Corpus& corpus, const Options& options) : bptt(options.bptt) {
    const auto rows = static_cast<std::int64_t>(corpus.train.size()) / options.batch;
    columns = at::empty({rows, options.batch}, at::kLong);
    for (std::int64_t column = 0; column < options.batch; ++column) {
      for (std::int64_t row = 0; row < rows; ++row) {
        columns[row][column] = corpus.train[static_cast<std::size_t>(column * rows + row)];
      }
    }
  }
  at::Tensor words(std::int64_t step) const { return columns.narrow(0, step * bptt, bptt); }
  at::Tensor targets(std::int64_t step) const { return columns.narrow(0, step * bptt + 1, bptt); }

  std::int64_t bptt;
  at::Tensor columns;
};

void expect_close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::allclose(a[i], b[i], 1e-4, 1e-6))
        << "parameter " << i << " differs by " << (a[i] - b[i]).abs().max().item<double>();
  }
}

TEST_P(PsRnnTest, TrainsAsTheSameModelInOneProcess) {
  // Not with the learning rate that all were made with.
  constexpr std::int64_t kEpoch = 3;
  for (const int servers : {1, 2}) {
    for (const char* optimizer : {"sgd", "adam"}) {
      for (const bool scores_to_trainer : {false, true}) {
        SCOPED_TRACE(std::to_string(servers) + " servers, " + optimizer);
        options_.optimizer = optimizer;
        options_.scores_to_trainer = scores_to_trainer;
        start_team(1, servers);
        Training training = make_training();
        const Corpus corpus = load_corpus(options_.data, options_.corpus);
        EXPECT_EQ(corpus.tokens(), 7);
        LocalModel local(model_settings(options_, corpus.tokens()), values_of(training));
        std::unique_ptr<torch::optim::Optimizer> stepper;
        const double lr = options_.learning_rate(kEpoch);
        if (options_.optimizer == "sgd") {
          stepper = std::make_unique<torch::optim::SGD>(local.parameters(), lr);
        } else {
          stepper = std::make_unique<torch::optim::Adam>(local.parameters(), lr);
        }
        const std::vector<at::Tensor> before = values_of(training);
        local.reset(options_.nlayers, options_.batch, options_.nhid);
        const Batches batches(corpus, options_);

        training.begin_epoch(kEpoch);
        for (std::int64_t step = 0; step < kSteps; ++step) {
          const Loss loss = training.round(1);
          stepper->zero_grad();
          const at::Tensor local_loss = local.loss(batches.words(step), batches.targets(step));
          local_loss.backward();
          stepper->step();
          EXPECT_NEAR(loss.mean(), local_loss.item<double>(), 1e-5) << "step " << step;
        }
        expect_close(values_of(training), local.parameters());
        EXPECT_GT((values_of(training)[0] - before[0]).abs().max().item<double>(), 1e-4)
            << "something was learnt";
        EXPECT_EQ(training.round(1).words, 0) << "the epoch is over";
      }
    }
  }
}

TEST_P(PsRnnTest, ShardsAreOneTable) {
  std::vector<std::vector<at::Tensor>> values;
  for (const int servers : {1, 2, 3}) {
    start_team(1, servers);
    options_.dropout = 0;
    Training training = make_training();
    training.begin_epoch(1);
    training.round(kSteps);
    values.push_back(values_of(training));
  }
  expect_close(values[0], values[1]);
  expect_close(values[0], values[2]);
}

TEST_P(PsRnnTest, SeveralTrainersShareTheServersAndMeetAfterEachRound) {
  start_team(2, 2);
  Training training = make_training();
  const std::vector<at::Tensor> before = values_of(training);
  training.begin_epoch(1);
  const Loss loss = training.round(4);
  EXPECT_EQ(loss.words, 2 * 4 * options_.batch * options_.bptt);
  EXPECT_GT(loss.mean(), 0);
  const auto first = sinew::rpc_sync<&Trainer::parameters>(training.trainers()[0]);
  const auto second = sinew::rpc_sync<&Trainer::parameters>(training.trainers()[1]);
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i]));
  const std::vector<at::Tensor> after = values_of(training);
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_FALSE(at::equal(before[i], after[i])) << "parameter " << i << " has not moved";
  }
}

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
TEST_P(PsRnnTest, LstmsMeetInTheMiddleOfThoseThatAreLeft) {
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

TEST_P(PsRnnTest, ATrainerThatWasLostBeforeARestartGetsTheLstmOfTheOthers) {
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
TEST_P(PsRnnTest, AStepInWhichAServerIsLostIsMadeOnce) {
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
TEST_P(PsRnnTest, TheLstmRemembersWhatWasBeforeATakeOver) {
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

TEST_P(PsRnnTest, AServerThatIsLostBetweenTwoEpochsIsReplacedBeforeTheNextStep) {
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
TEST_P(PsRnnTest, AStandbyThatComesBackStandsByAgain) {
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
    const auto come_back = [&](int rank) {
      cluster.start("worker" + std::to_string(rank));
      worker(rank).publish(kReady, std::make_shared<std::string>());
    };
    ASSERT_TRUE(are_there(2));
    cluster.kill("worker3");
    ASSERT_TRUE(are_there(1));
    come_back(3);
    for (const int lost : {1, 3}) {
      ASSERT_TRUE(are_there(2));
      cluster.kill("worker" + std::to_string(lost));
      EXPECT_EQ(training.round(2).words, 2 * options_.batch * options_.bptt);
      come_back(lost);
    }
    EXPECT_EQ(training.failovers().count, 2);
    EXPECT_EQ(training.failovers().lost_steps, 0);
  }
}

TEST_P(PsRnnTest, AllGoBackToTheLastCheckpointOfWhichAllIsKnownToBeWritten) {
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
    cluster.start("worker2");
    worker(2).publish(kReady, std::make_shared<std::string>());
    sinew::optim::serve_checkpoints(worker(2), options_.checkpoint.string());
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

TEST_P(PsRnnTest, AResumedTrainingIsTheUninterruptedOne) {
  for (const char* optimizer : {"sgd", "momentum", "adagrad", "adam", "rmsprop"}) {
    SCOPED_TRACE(optimizer);
    options_.optimizer = optimizer;
    options_.dropout = 0.3;
    options_.epochs = 4;
    options_.resume = false;
    options_.checkpoint.clear();
    // A file for the curve, so that its first part survives.
    options_.output = folder_ / optimizer / "whole";
    start_team(1, 2);
    const TrainingResult whole = train_all();

    options_.output = folder_ / optimizer / "parts";
    const auto root = folder_ / optimizer / "checkpoints";
    for (const int epochs : {1, 3, 4}) {
      options_.epochs = epochs;
      options_.resume = epochs > 1;
      start_team(1, 2);  // new processes, as it were
      serve_checkpoints(root, 3);
      const TrainingResult part = train_all();
      if (epochs == 4) {
        EXPECT_EQ(part.valid_perplexity, whole.valid_perplexity);
        EXPECT_EQ(to_csv(part.curve), to_csv(whole.curve));
      }
    }
    EXPECT_EQ(examples::read_file(root / "latest"), "4\n");
  }
}

TEST_P(PsRnnTest, SaysWhyItCannotResume) {
  start_team(1, 1);
  serve_checkpoints(folder_ / "checkpoints", 2);
  const auto told = [&]() -> std::string {
    try {
      train_all();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  options_.resume = true;
  EXPECT_THAT(told(), HasSubstr("latest"));
  options_.resume = false;
  EXPECT_EQ(told(), "");
  options_.resume = true;
  EXPECT_THAT(told(), HasSubstr("nothing left to train"));
  options_.epochs = 9;
  options_.nhid = 8;
  EXPECT_THAT(told(), AnyOf(HasSubstr("odd"), HasSubstr("even")));
}

TEST_P(PsRnnTest, ATextThatIsTooShortIsNamed) {
  start_team(2, 1);
  options_.batch = 4000;
  const sinew::RpcError error = error_of([&] { make_training(); });
  EXPECT_THAT(error.what(), HasSubstr("is too short"));
  EXPECT_THAT(error.what(), HasSubstr("--batch"));
}

SINEW_INSTANTIATE_CLUSTER_TEST(PsRnnTest);

}  // namespace
}  // namespace ps_rnn
