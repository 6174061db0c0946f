#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/ps_rnn/course.h"
#include "sinew/tests/examples/ps_rnn_team.h"
#include "torch/optim/adam.h"
#include "torch/optim/sgd.h"

namespace ps_rnn {
namespace {

using sinew::testing::error_of;
using ::testing::AnyOf;
using ::testing::HasSubstr;

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

class PsRnnTest : public PsRnnTeam {
 protected:
  TrainingResult train_all() const {
    std::ostringstream log;
    return train(worker(0), {trainers_, servers_}, options_, log);
  }
};

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
  const auto first = training.trainers()[0].call<&Trainer::parameters>();
  const auto second = training.trainers()[1].call<&Trainer::parameters>();
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i]));
  const std::vector<at::Tensor> after = values_of(training);
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_FALSE(at::equal(before[i], after[i])) << "parameter " << i << " has not moved";
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
