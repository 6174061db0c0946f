#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "image_files.h"
#include "rank_threads.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/image_classifier/checkpoint.h"
#include "sinew/examples/image_classifier/data/memory_set.h"
#include "sinew/examples/image_classifier/models/resnet.h"
#include "sinew/examples/image_classifier/optimizer.h"
#include "sinew/examples/image_classifier/training.h"
#include "sinew/tests/support/temporary_folder.h"
#include "torch/cuda.h"
#include "torch/utils.h"

namespace image_classifier {
namespace {

using examples::testing::as_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

ResNetOptions small_network() {
  ResNetOptions options;
  options.channels = 1;
  options.width = 4;
  return options;
}

class FolderTest : public ::testing::Test {
 protected:
  const sinew::testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

class CheckpointTest : public FolderTest {
 protected:
  void step() {
    optimizer_->zero_grad();
    network_.forward(at::ones({2, 1, 28, 28})).sum().backward();
    optimizer_->step();
  }

  static std::vector<void*> places_of(const ResNet& network) {
    std::vector<void*> places;
    for (const at::Tensor& parameter : network.parameters()) places.push_back(parameter.data_ptr());
    for (const at::Tensor& buffer : network.buffers()) places.push_back(buffer.data_ptr());
    return places;
  }

  ResNet network_{small_network()};
  const std::unique_ptr<Sgd> optimizer_ =
      make_sgd(network_.parameters(), {0.01, 0.9, 0}, std::nullopt);
};

TEST_F(CheckpointTest, RestoresAllThatATrainingIsMadeOf) {
  step();
  Progress progress;
  progress.epoch = 3;
  progress.round = 2;
  progress.train = {1.5, 4, {2, 3}};
  progress.best_top = 0.75;
  progress.curve = {{1, {0.5, 0.25}}, {2, {0.125, 0.0625}}};
  const CheckpointFolder checkpoints(folder_, "a: 1\nb: 2");
  checkpoints.save("latest.pt", network_, optimizer_->save(), progress);
  step();
  ResNet other(small_network());
  const auto other_optimizer = make_sgd(other.parameters(), {1, 0.9, 0}, std::nullopt);
  const std::vector<void*> places = places_of(other);
  as_ranks(1, [&](const sinew::ProcessGroup& group) {
    const auto loaded = checkpoints.load(other, *other_optimizer, group);
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->epoch, 3);
    EXPECT_EQ(loaded->round, 2);
    EXPECT_EQ(loaded->train.top, std::vector<double>({2, 3}));
    EXPECT_EQ(loaded->best_top, 0.75);
    ASSERT_EQ(loaded->curve.size(), 2U);
    EXPECT_EQ(loaded->curve[1].at, 2);
    EXPECT_EQ(loaded->curve[1].values, std::vector<double>({0.125, 0.0625}));
  });
  EXPECT_EQ(places_of(other), places) << "a DistributedDataParallel knows these";
  // The next step is the same, so momentum and running means came along.
  other_optimizer->zero_grad();
  other.forward(at::ones({2, 1, 28, 28})).sum().backward();
  other_optimizer->set_rate(0.01);
  other_optimizer->step();
  for (std::size_t i = 0; i < other.parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(other.parameters()[i], network_.parameters()[i])) << i;
  }
  for (std::size_t i = 0; i < other.buffers().size(); ++i) {
    EXPECT_TRUE(at::equal(other.buffers()[i], network_.buffers()[i])) << i;
  }
}

TEST_F(CheckpointTest, SaysWhyAFileCannotBeUsed) {
  const CheckpointFolder checkpoints(folder_, "a: 1\nb: 2");
  const auto error = [&](const CheckpointFolder& reader) {
    std::string text = "no error";
    as_ranks(1, [&](const sinew::ProcessGroup& group) {
      try {
        EXPECT_FALSE(reader.load(network_, *optimizer_, group).has_value());
      } catch (const std::runtime_error& failure) {
        text = failure.what();
      }
    });
    return text;
  };
  EXPECT_EQ(error(checkpoints), "no error") << "there is none";
  checkpoints.save("latest.pt", network_, optimizer_->save(), {});
  EXPECT_THAT(error(CheckpointFolder(folder_, "a: 1\nb: 3")),
              AllOf(HasSubstr("latest.pt"), HasSubstr("'b: 2', and now it is 'b: 3'")));
  const std::string whole = examples::read_file(folder_ / "latest.pt");
  for (const std::string& damaged :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("PK nonsense")}) {
    examples::write_file(folder_ / "latest.pt", damaged);
    EXPECT_THAT(error(checkpoints), AllOf(HasSubstr("latest.pt"), Not(HasSubstr("\n"))));
  }
}

/// Ends a training, like a power cut, when its log says something.
class Interruption : public std::stringbuf {
 public:
  explicit Interruption(std::string when) : when_(std::move(when)) {}

 protected:
  int sync() override {
    if (str().find(when_) != std::string::npos) throw std::runtime_error("interrupted");
    return 0;
  }

 private:
  const std::string when_;
};

class TrainingTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    examples::testing::write_mnist(folder_, 240, 61);
    data_ = memory_sets(examples::load_images(folder_), 1);
    options_.output.clear();
    options_.width = 4;
    options_.batch = 20;
    options_.round = 2;
    options_.epochs = 3;
  }

  TrainingResult train_alone(std::ostream& log) {
    TrainingResult result;
    as_ranks(
        1, [&](const sinew::ProcessGroup& group) { result = train(group, data_, options_, log); });
    return result;
  }
  TrainingResult train_alone() {
    std::ostringstream log;
    return train_alone(log);
  }
  void train_until(const std::string& line) {
    Interruption buffer(line);
    std::ostream log(&buffer);
    log.exceptions(std::ios::badbit);
    EXPECT_THROW(train_alone(log), std::runtime_error);
  }
  static void expect_same(const TrainingResult& one, const TrainingResult& other) {
    ASSERT_EQ(one.state.size(), other.state.size());
    for (std::size_t i = 0; i < one.state.size(); ++i) {
      EXPECT_TRUE(at::equal(one.state[i], other.state[i])) << i;
    }
    EXPECT_EQ(examples::to_csv(one.curve), examples::to_csv(other.curve));
    EXPECT_EQ(one.test.loss, other.test.loss);
  }

  DataSets data_;
  Options options_;
};

// With one rank: several in one process would draw their first parameters from one generator. That
// it holds for several processes is tested with the program.
TEST_F(TrainingTest, AResumedOneIsTheUninterruptedOne) {
  const TrainingResult whole = train_alone();
  options_.checkpoint = folder_ / "saved";
  options_.checkpoint_rounds = 2;
  options_.resume = true;
  // Between two checkpoints of an epoch; then right after the end of one.
  train_until("Epoch 2, step 6 of 12");
  train_until("Epoch 2: train loss");
  expect_same(train_alone(), whole);
  // Once more, when nothing is left.
  expect_same(train_alone(), whole);
}

TEST_F(TrainingTest, NumbersDoNotDependOnHowTheyAreComputed) {
  options_.epochs = 2;
  const TrainingResult plain = train_alone();
  options_.workers = 3;
  expect_same(train_alone(), plain);
  options_.checkpoint_activations = true;
  expect_same(train_alone(), plain);
  options_.zero = true;
  std::ostringstream log;
  expect_same(train_alone(log), plain);
  EXPECT_THAT(log.str(), HasSubstr("Optimizer state: rank 0 0.1"));
}

TEST_F(TrainingTest, ZeroSpreadsTheStateAndResumes) {
  options_.zero = true;
  options_.epochs = 2;
  options_.checkpoint = folder_ / "saved";
  as_ranks(2, [&](const sinew::ProcessGroup& group) {
    std::ostringstream log;
    train(group, data_, options_, log);
    EXPECT_THAT(log.str(), HasSubstr(group.rank() == 0 ? "Optimizer state: rank 0 " : ""));
  });
  options_.resume = true;
  as_ranks(2, [&](const sinew::ProcessGroup& group) {
    std::ostringstream log;
    train(group, data_, options_, log);
    EXPECT_THAT(log.str(), HasSubstr(group.rank() == 0 ? "nothing left to train" : ""));
  });
}

TEST_F(TrainingTest, AccumulatesWithoutExchangeUntilTheLastPass) {
  options_.epochs = 1;
  options_.batch = 10;
  options_.accumulate = 3;
  options_.round = 1;
  as_ranks(2, [&](const sinew::ProcessGroup& group) {
    std::ostringstream log;
    const TrainingResult result = train(group, data_, options_, log);
    EXPECT_THAT(log.str(), HasSubstr(group.rank() == 0 ? "step 4 of 4" : ""));
    for (const at::Tensor& tensor : result.state) {
      const at::Tensor first = tensor.clone();
      group.broadcast(first, 0);
      EXPECT_TRUE(at::equal(tensor, first));
    }
  });
  options_.accumulate = 25;
  EXPECT_THROW(train_alone(), std::invalid_argument) << "there are 24 batches";
}

TEST_F(TrainingTest, EvaluatesWhatWasTrained) {
  options_.epochs = 1;
  options_.checkpoint = folder_ / "saved";
  const TrainingResult trained = train_alone();
  options_.evaluate = true;
  options_.resume = true;
  std::ostringstream log;
  const TrainingResult evaluated = train_alone(log);
  EXPECT_EQ(evaluated.test.loss, trained.test.loss);
  EXPECT_EQ(evaluated.test.top, trained.test.top);
  EXPECT_THAT(log.str(), AllOf(HasSubstr("Evaluation: loss "), HasSubstr(", 61 pictures")));
}

TEST_F(TrainingTest, SyncBatchNormSeesAllRanks) {
  options_.epochs = 1;
  options_.max_steps = 2;
  // Of each way: all running means and variances of rank 0.
  std::vector<std::vector<at::Tensor>> states;
  for (const bool sync : {false, true}) {
    options_.sync_batch_norm = sync;
    as_ranks(2, [&](const sinew::ProcessGroup& group) {
      std::ostringstream log;
      const TrainingResult result = train(group, data_, options_, log);
      if (group.rank() == 0) states.push_back(result.state);
    });
  }
  bool differs = false;
  for (std::size_t i = 0; i < states[0].size(); ++i) {
    differs = differs || !at::equal(states[0][i], states[1][i]);
  }
  EXPECT_TRUE(differs);
}

TEST_F(TrainingTest, TellsOfPinnedMemoryThatThereIsNot) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is CUDA here";
  options_.pin_memory = true;
  options_.epochs = 1;
  options_.max_steps = 1;
  std::ostringstream log;
  train_alone(log);
  EXPECT_THAT(log.str(), HasSubstr("--pin-memory has no effect"));
}

TEST_F(TrainingTest, KeepsTheBestEpoch) {
  options_.checkpoint = folder_ / "saved";
  const TrainingResult result = train_alone();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "saved" / "best.pt"));
  double best = 0;
  for (const auto& point : result.curve.points) best = std::max(best, point.values.back());
  EXPECT_GE(best, result.test.top_share(0));
}

TEST_F(TrainingTest, CountsEachTestPictureOnceWhateverTheRanks) {
  options_.epochs = 1;
  as_ranks(3, [&](const sinew::ProcessGroup& group) {
    std::ostringstream log;
    const TrainingResult result = train(group, data_, options_, log);
    EXPECT_EQ(result.test.samples, 61);
    // All begin with rank 0's parameters, and make the same steps.
    for (const at::Tensor& tensor : result.state) {
      const at::Tensor first = tensor.clone();
      group.broadcast(first, 0);
      EXPECT_TRUE(at::equal(tensor, first));
    }
  });
}

TEST_F(TrainingTest, ScalesTheRateWithTheRanks) {
  options_.epochs = 1;
  options_.max_steps = 1;
  options_.warmup_epochs = 0;
  options_.lr = 0.256;
  as_ranks(2, [&](const sinew::ProcessGroup& group) {
    std::ostringstream log;
    train(group, data_, options_, log);
    const std::string rate = ", rate 0.04000, ";
    EXPECT_THAT(log.str(), HasSubstr(group.rank() == 0 ? rate : ""));
  });
}

TEST_F(TrainingTest, RefusesABatchThatNoRankHas) {
  options_.batch = 241;
  EXPECT_THROW(train_alone(), std::invalid_argument);
}

}  // namespace
}  // namespace image_classifier
