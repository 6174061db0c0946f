// Saving and loading optimizers with their parameters.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize/archive.h>

#include "ATen/ATen.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::optim::Checkpoint;
using sinew::optim::DistributedOptimizer;
using sinew::optim::Options;
using sinew::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testoptim::batch;
using testoptim::difference;
using testoptim::RemoteTraining;

namespace {

namespace fs = std::filesystem;

class Checkpoints : public sinew::testing::ClusterTest {
 protected:
  // LibTorch sets up some strings when it first writes or reads an archive within another one.
  // ThreadSanitizer does not see what guards them when two workers do so at once, so they are set
  // up before there are any.
  static void SetUpTestSuite() {
    torch::serialize::OutputArchive outer;
    torch::serialize::OutputArchive inner(outer.compilation_unit());
    inner.write("number", c10::IValue(1));
    outer.write("inner", inner);
    std::stringstream bytes;
    outer.save_to(bytes);
    torch::serialize::InputArchive archive;
    archive.load_from(bytes);
  }

  void start_workers() {
    sinew::MethodTable methods;
    testoptim::add_methods(methods);
    start(3, methods);
    // A host each.
    for (int rank = 1; rank < 3; ++rank) {
      fs::create_directories(root(rank));
      sinew::optim::serve_checkpoints(worker(rank), root(rank));
    }
  }
  std::string root(int rank) { return folder_.file("host" + std::to_string(rank)); }
  std::vector<std::string> files(int rank, const std::string& name) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(root(rank) + "/" + name)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  static void train(const RemoteTraining& training, const DistributedOptimizer& optimizer,
                    std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step < to; ++step) training.step(optimizer, batch(step));
  }

  const sinew::testing::TemporaryFolder folder_;
};

std::vector<Options> all_options() {
  sinew::optim::SgdOptions sgd;
  sgd.momentum = 0.9;
  sinew::optim::AdamOptions adam;
  adam.amsgrad = true;
  sinew::optim::RmsPropOptions rms;
  rms.momentum = 0.5;
  return {sgd,
          adam,
          sinew::optim::AdamWOptions(),
          sinew::optim::AdagradOptions(),
          rms,
          sinew::optim::AdadeltaOptions(),
          sinew::optim::AdamaxOptions(),
          sinew::optim::RpropOptions()};
}

TEST_P(Checkpoints, TrainingGoesOnAsIfNothingHadHappened) {
  start_workers();
  for (const Options& options : all_options()) {
    const std::string name = std::string(options.name());
    SCOPED_TRACE(name);
    const RemoteTraining whole(worker(0), 2, false);
    const DistributedOptimizer of_whole(worker(0), whole.parameters(), options);
    train(whole, of_whole, 0, 6);
    of_whole.set_learning_rate(0.007);
    const Checkpoint saved = of_whole.save(name, "after 6\nsteps");
    EXPECT_EQ(saved.number, 1U);
    train(whole, of_whole, 6, 12);

    const RemoteTraining resumed(worker(0), 2, false);
    const DistributedOptimizer of_resumed(worker(0), resumed.parameters(), options);
    train(resumed, of_resumed, 20, 22);
    const Checkpoint loaded = of_resumed.load(name);
    EXPECT_EQ(loaded.number, 1U);
    EXPECT_EQ(loaded.note, "after 6\nsteps");
    train(resumed, of_resumed, 6, 12);
    EXPECT_EQ(difference(whole.values(), resumed.values()), 0);
  }
}

TEST_P(Checkpoints, OldOnesAreForgottenWhenAllOwnersHaveTheNewOne) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                       sinew::optim::AdamOptions());
  sinew::optim::SaveOptions how;
  how.note = "one";
  how.kept = 1;
  optimizer.save("run/a", how);
  train(training, optimizer, 0, 1);
  how.note = "two";
  EXPECT_EQ(optimizer.save("run/a", how).number, 2U);
  EXPECT_THAT(files(1, "run/a"), ElementsAre("worker1.000002.manifest", "worker1.000002.pt"));
  EXPECT_THAT(files(2, "run/a"), ElementsAre("worker2.000002.manifest", "worker2.000002.pt"));
  // One owner fails: the others have a third one, which nobody loads.
  fs::create_directories(root(2) + "/run/a/worker2.000003.pt");
  const std::vector<at::Tensor> at_two = training.values();
  train(training, optimizer, 1, 2);
  const RpcError error = error_of([&] { optimizer.save("run/a", "three"); });
  EXPECT_THAT(error.message(), HasSubstr("1 of 2 owners failed: 'worker2': "));
  EXPECT_EQ(error.code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(error.peer(), "worker2");
  EXPECT_EQ(files(1, "run/a").size(), 4U);
  EXPECT_THAT(files(2, "run/a"),
              ElementsAre("worker2.000002.manifest", "worker2.000002.pt", "worker2.000003.pt"));
  const Checkpoint loaded = optimizer.load("run/a");
  EXPECT_EQ(loaded.number, 2U);
  EXPECT_EQ(loaded.note, "two");
  EXPECT_EQ(difference(training.values(), at_two), 0);
  // The next one has a number that no owner has used. The third one never was one.
  EXPECT_EQ(optimizer.save("run/a", "four").number, 4U);
  EXPECT_EQ(optimizer.load("run/a", 2).note, "two");
  EXPECT_EQ(optimizer.save("run/a", "five").number, 5U);
  EXPECT_EQ(files(1, "run/a").size(), 4U);
  EXPECT_EQ(optimizer.load("run/a", 4).note, "four");
  EXPECT_EQ(optimizer.load("run/a").note, "five");
}

TEST_P(Checkpoints, MistakesAreNamed) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                       sinew::optim::AdamOptions());
  RpcError error = error_of([&] { optimizer.load("nothing"); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.message(), HasSubstr("no checkpoint in 'nothing' that all owners have: "
                                         "'worker1' has [], 'worker2' has []"));
  for (const char* name : {"", "/absolute", "..", "a/../../b"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(error_of([&] { optimizer.save(name); }).code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of([&] { optimizer.load(name); }).code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(error_of([&] { optimizer.save("a", std::string(5000, 'x')); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { sinew::optim::serve_checkpoints(worker(0), root(9)); }).code(),
            ErrorCode::kInvalidArgument);

  // Worker 0 has not been told where to.
  const at::Tensor own = at::ones({1}).set_requires_grad(true);
  const DistributedOptimizer here(worker(0), {sinew::make_rref(worker(0), own)},
                                  sinew::optim::AdamOptions());
  error = error_of([&] { here.save("a"); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(),
              HasSubstr("worker 'worker0' serves no checkpoints: its program has"));

  // Others' checkpoints.
  optimizer.save("adam");
  const std::vector<at::Tensor> before = training.values();
  const DistributedOptimizer sgd(worker(0), training.parameters(), sinew::optim::SgdOptions());
  error = error_of([&] { sgd.load("adam"); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("it is of Adam, and this optimizer is SGD"));
  auto fewer = training.parameters();
  fewer.erase(fewer.begin());
  const DistributedOptimizer partial(worker(0), fewer, sinew::optim::AdamOptions());
  error = error_of([&] { partial.load("adam"); });
  EXPECT_THAT(error.message(), HasSubstr("it has 3 parameters, and this optimizer has 2 here"));
  auto turned = training.parameters();
  std::swap(turned[0], turned[1]);
  const DistributedOptimizer other(worker(0), turned, sinew::optim::AdamOptions());
  error = error_of([&] { other.load("adam"); });
  EXPECT_THAT(error.message(), HasSubstr("is '0 Float [12, 4]' there, and '0 Float [4, 4]' here"));

  // Damaged ones.
  const std::string data = root(1) + "/adam/worker1.000001.pt";
  const auto size = fs::file_size(data);
  {
    std::fstream file(data, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 4));
    file << std::string(size / 2, '\x5a');
  }
  error = error_of([&] { optimizer.load("adam"); });
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
  EXPECT_THAT(error.message(), HasSubstr("'worker1': "));
  EXPECT_THAT(error.message(), HasSubstr("worker1.000001.pt' is damaged: its SHA-256"));
  fs::resize_file(data, size / 2);
  error = error_of([&] { optimizer.load("adam"); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.message(), HasSubstr("'worker1' has [], 'worker2' has [1]"));
  sinew::optim::SaveOptions none;
  none.kept = 0;
  EXPECT_EQ(error_of([&] { optimizer.save("adam", none); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(difference(training.values(), before), 0);
}

// Rate, decay, momentum: those of the training that goes on, as in PyTorch, whatever the optimizer
// was made with that loads them.
TEST_P(Checkpoints, HaveTheOptions) {
  start_workers();
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.05;
  sgd.weight_decay = 0.1;
  sgd.momentum = 0.9;
  sinew::optim::AdadeltaOptions adadelta;
  adadelta.lr = 0.5;
  adadelta.rho = 0.5;
  sinew::optim::AdamOptions adam;
  adam.weight_decay = 0.1;
  adam.amsgrad = true;
  const std::vector<std::pair<Options, Options>> pairs = {
      {sgd, sinew::optim::SgdOptions()},
      {adadelta, sinew::optim::AdadeltaOptions()},
      {adam, sinew::optim::AdamOptions()}};
  for (const auto& [saved, made] : pairs) {
    const std::string name(saved.name());
    SCOPED_TRACE(name);
    const RemoteTraining whole(worker(0), 2, false);
    const DistributedOptimizer of_whole(worker(0), whole.parameters(), saved);
    train(whole, of_whole, 0, 4);
    of_whole.save(name);
    train(whole, of_whole, 4, 8);
    const RemoteTraining resumed(worker(0), 2, false);
    const DistributedOptimizer of_resumed(worker(0), resumed.parameters(), made);
    of_resumed.load(name);
    train(resumed, of_resumed, 4, 8);
    EXPECT_EQ(difference(whole.values(), resumed.values()), 0);
  }
}

/// What was saved with options that keep less than those that it is loaded with.
struct Misfit {
  const char* option;
  Options saved;
  Options loaded;
};

std::vector<Misfit> misfits() {
  sinew::optim::AdamOptions adam;
  adam.amsgrad = true;
  sinew::optim::AdamWOptions adamw;
  adamw.amsgrad = true;
  sinew::optim::RmsPropOptions centered;
  centered.centered = true;
  sinew::optim::RmsPropOptions momentum;
  momentum.momentum = 0.5;
  return {{"amsgrad", sinew::optim::AdamOptions(), adam},
          {"amsgrad", sinew::optim::AdamWOptions(), adamw},
          {"centered", sinew::optim::RmsPropOptions(), centered},
          {"momentum", sinew::optim::RmsPropOptions(), momentum}};
}

// LibTorch would find out in the middle of the next step.
TEST_P(Checkpoints, OfOptionsThatKeepLessAreRefused) {
  start_workers();
  int number = 0;
  for (const Misfit& misfit : misfits()) {
    const std::string name = "run" + std::to_string(++number);
    SCOPED_TRACE(std::string(misfit.loaded.name()) + " " + misfit.option);
    const RemoteTraining training(worker(0), 2, false);
    const DistributedOptimizer less(worker(0), training.parameters(), misfit.saved);
    const DistributedOptimizer more(worker(0), training.parameters(), misfit.loaded);
    // Before the first step nothing is kept.
    less.save(name);
    more.load(name);
    train(training, more, 0, 2);
    more.save(name + "more");
    train(training, less, 0, 2);
    less.save(name);
    train(training, more, 2, 3);
    const std::vector<at::Tensor> before = training.values();
    const RpcError error = error_of([&] { more.load(name); });
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(
        error.message(),
        ::testing::AllOf(HasSubstr("cannot load '" + root(1) + "/" + name +
                                   "/worker1.000002.pt': it was saved without " + misfit.option),
                         HasSubstr("worker2.000002.pt")));
    EXPECT_EQ(difference(training.values(), before), 0);
    train(training, more, 3, 4);
    // What keeps more has all that the other needs.
    less.load(name + "more");
    train(training, less, 2, 3);
  }
}

SINEW_INSTANTIATE_CLUSTER_TEST(Checkpoints);

}  // namespace
