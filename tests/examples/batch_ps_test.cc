#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/batch_ps/trainer.h"
#include "sinew/tests/support/cluster.h"

namespace batch_ps {
namespace {

using sinew::testing::error_of;
using ::testing::HasSubstr;

constexpr std::int64_t kSeed = 3;
constexpr double kRate = 0.2;
constexpr std::int64_t kBatch = 30;

sinew::MethodTable all_methods() {
  return sinew::serve<Trainer>().serve<BatchServer>(sinew::one_at_a_time(kTurns));
}

class BatchPsTest : public sinew::testing::ClusterTest {
 protected:
  /// One thread each: whoever waits must not hold it.
  void start_team(int trainers) {
    start(1 + trainers, all_methods(),
          [](int, sinew::WorkerOptions& options) { options.num_threads = 1; });
    server_ = worker(0).peer(0).remote<BatchServer>(kRate, kSeed, std::string());
    server_.call<&BatchServer::set_trainers>(static_cast<std::size_t>(trainers));
    for (int rank = 1; rank <= trainers; ++rank) {
      trainers_.push_back(worker(0).peer(rank).remote<Trainer>(rank, kBatch, kSeed, std::string()));
    }
  }
  std::vector<double> train(std::int64_t steps) {
    std::vector<sinew::Future<double>> running;
    for (const auto& trainer : trainers_) {
      running.push_back(trainer.async<&Trainer::train>(server_, steps));
    }
    std::vector<double> losses;
    for (const auto& one : running) losses.push_back(one.wait());
    return losses;
  }
  void TearDown() override {
    trainers_.clear();
    server_ = {};
    finish();
  }

  sinew::RRef<BatchServer> server_;
  std::vector<sinew::RRef<Trainer>> trainers_;
};

TEST_P(BatchPsTest, StepsOnceAlongTheMeanOfAllGradients) {
  constexpr int kTrainers = 4;
  constexpr std::int64_t kSteps = 8;
  start_team(kTrainers);
  train(kSteps);
  EXPECT_EQ(server_.call<&BatchServer::steps>(), kSteps);

  // One process with all the data of a step at once does the same.
  Parameters local = make_parameters(kSeed);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    std::vector<at::Tensor> points;
    std::vector<at::Tensor> arms;
    for (std::int64_t trainer = 1; trainer <= kTrainers; ++trainer) {
      const auto data =
          examples::Spirals::make(kBatch, (kSeed * 1000 + trainer) * 1'000'000 + step);
      points.push_back(data.points);
      arms.push_back(data.arms);
    }
    for (at::Tensor& parameter : local) parameter.requires_grad_();
    at::cross_entropy_loss(scores(local, at::cat(points)), at::cat(arms)).backward();
    for (at::Tensor& parameter : local) parameter = (parameter - kRate * parameter.grad()).detach();
  }
  const Parameters shared = server_.call<&BatchServer::parameters>();
  ASSERT_EQ(shared.size(), local.size());
  for (std::size_t i = 0; i < local.size(); ++i) {
    EXPECT_TRUE(at::allclose(shared[i], local[i], 1e-4, 1e-5)) << "parameter " << i;
  }
}

TEST_P(BatchPsTest, LearnsTheSpirals) {
  start_team(2);
  const double first = train(5).front();
  train(300);
  const double last = train(5).front();
  EXPECT_LT(last, first / 2);
}

TEST_P(BatchPsTest, RefusesGradientsOfAnotherModel) {
  start_team(1);
  const Parameters before = server_.call<&BatchServer::parameters>();
  EXPECT_THAT(error_of([&] { server_.call<&BatchServer::update>(Gradients()); }).what(),
              HasSubstr("parameters"));
  Parameters wrong = before;
  wrong.back() = at::zeros({1});
  EXPECT_THAT(error_of([&] {
                server_.call<&BatchServer::update>(Gradients{"", wrong});
              }).what(),
              HasSubstr("another shape"));
  EXPECT_EQ(server_.call<&BatchServer::steps>(), 0);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(at::equal(server_.call<&BatchServer::parameters>()[i], before[i]));
  }
  train(1);
  EXPECT_EQ(server_.call<&BatchServer::steps>(), 1);
}

SINEW_INSTANTIATE_CLUSTER_TEST(BatchPsTest);

}  // namespace
}  // namespace batch_ps
