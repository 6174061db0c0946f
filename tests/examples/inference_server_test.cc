#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/inference_server/classifier.h"
#include "sinew/examples/inference_server/client.h"
#include "sinew/examples/inference_server/options.h"
#include "sinew/examples/inference_server/report.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

namespace inference_server {
namespace {

using sinew::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kWidth = 8;

NetworkSettings network() {
  NetworkSettings settings;
  settings.width = kWidth;
  settings.layers = 3;
  settings.classes = 4;
  settings.seed = 5;
  return settings;
}

class InferenceServerTest : public sinew::testing::ClusterTest {
 protected:
  void start_server(const sinew::BatcherOptions& batching) {
    sinew::MethodTable methods;
    methods.add<&Classifier::scores>().add<&make_requests>();
    start(3, std::move(methods),
          [](int, sinew::WorkerOptions& options) { options.num_threads = 1; });
    classifier_ = std::make_shared<Classifier>(network(), batching);
    shared_ = sinew::share_rref(worker(0), classifier_);
  }
  void TearDown() override {
    shared_ = {};
    classifier_.reset();
    finish();
  }

  std::shared_ptr<Classifier> classifier_;
  sinew::RRef<Classifier> shared_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(InferenceServerTest);

TEST_P(InferenceServerTest, ABatchAnswersAsSingleRequestsDo) {
  sinew::BatcherOptions batching;
  batching.max_batch = 6;
  batching.max_wait = sinew::kNoTimeout;
  start_server(batching);
  const at::Tensor rows = at::randn({6, kWidth});
  std::vector<sinew::Future<at::Tensor>> together;
  for (const at::Tensor& row : rows.unbind()) {
    together.push_back(shared_.async<&Classifier::scores>(row));
  }
  batching.max_batch = 1;
  Classifier alone(network(), batching);
  for (std::size_t i = 0; i < together.size(); ++i) {
    const at::Tensor scores = alone.scores(rows[static_cast<std::int64_t>(i)]).take();
    EXPECT_EQ(scores.sizes(), at::IntArrayRef({4}));
    EXPECT_FALSE(scores.requires_grad());
    EXPECT_TRUE(at::allclose(together[i].wait(), scores, 1e-4, 1e-6)) << i;
  }
  EXPECT_EQ(classifier_->stats().batches, 1u);
}

TEST_P(InferenceServerTest, ARequestOfAnotherShapeFailsAlone) {
  sinew::BatcherOptions batching;
  batching.max_batch = 2;
  batching.max_wait = sinew::kNoTimeout;
  start_server(batching);
  const auto right = shared_.async<&Classifier::scores>(at::randn({kWidth}));
  const sinew::RpcError error =
      error_of([&] { shared_.call<&Classifier::scores>(at::randn({kWidth + 1})); });
  EXPECT_THAT(error.message(), HasSubstr("a request is 8 floats"));
  shared_.call<&Classifier::scores>(at::randn({kWidth}));
  right.wait();
}

TEST_P(InferenceServerTest, ClientsGetAllAnswers) {
  sinew::BatcherOptions batching;
  batching.max_batch = 4;
  start_server(batching);
  std::vector<sinew::Future<Answers>> clients;
  for (const double rate : {0.0, 5000.0}) {
    const Load load = {50, 3, rate, kWidth, 1};
    clients.push_back(worker(0).peer(rate == 0 ? 1 : 2).async<&make_requests>(shared_, load));
  }
  for (const Answers& answers : sinew::wait_all(std::move(clients))) {
    EXPECT_EQ(answers.latencies_ms.size(), 50u);
    EXPECT_EQ(answers.refused, 0);
    for (const double latency : answers.latencies_ms) EXPECT_GT(latency, 0);
  }
  EXPECT_EQ(classifier_->stats().calls, 100u);
}

TEST(InferenceReportTest, Percentiles) {
  const std::vector<double> hundred = [] {
    std::vector<double> values;
    for (int i = 100; i > 0; --i) values.push_back(i);
    return values;
  }();
  EXPECT_EQ(percentile(hundred, 0.5), 50);
  EXPECT_EQ(percentile(hundred, 0.99), 99);
  EXPECT_EQ(percentile(hundred, 1), 100);
  EXPECT_EQ(percentile({7, 3}, 0), 3);
  EXPECT_EQ(percentile({7, 3}, 0.9), 7);
  EXPECT_TRUE(std::isnan(percentile({}, 0.5)));
}

TEST(InferenceReportTest, WritesEachSize) {
  Answers answers;
  answers.latencies_ms = {1, 2, 3, 4};
  answers.refused = 2;
  const std::vector<Measurement> measured = {measure(1, answers, std::chrono::seconds(2), 4),
                                             measure(8, answers, std::chrono::seconds(1), 2)};
  EXPECT_EQ(measured[1].requests_per_s, 4);
  EXPECT_EQ(measured[1].mean_batch, 2);
  EXPECT_THAT(table_line(measured[0]), HasSubstr("2.00        4.00        4.00         1.0"));
  const sinew::testing::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  write_report(measured, folder);
  EXPECT_EQ(examples::read_file(folder / "throughput.csv"), "max_batch,requests_per_s\n1,2\n8,4\n");
  EXPECT_EQ(examples::read_file(folder / "latency.csv"),
            "max_batch,p99_ms,p90_ms,p50_ms\n1,4,4,2\n8,4,4,2\n");
  EXPECT_THAT(examples::read_file(folder / "latency.svg"), StartsWith("<svg"));
}

TEST(InferenceOptionsTest, Flags) {
  const char* const words[] = {"inference_server", "--batches", "1,8", "--rate", "100"};
  const auto parsed = parse_options(5, words);
  ASSERT_TRUE(std::holds_alternative<Options>(parsed));
  EXPECT_THAT(std::get<Options>(parsed).batches, ElementsAre(1, 8));
  EXPECT_EQ(std::get<Options>(parsed).rate, 100);
  const char* const never_full[] = {"inference_server", "--batches", "8", "--max-queued", "7"};
  EXPECT_EQ(std::get<int>(parse_options(5, never_full)), 2);
  const char* const no_size[] = {"inference_server", "--batches", "1,0"};
  EXPECT_EQ(std::get<int>(parse_options(3, no_size)), 2);
}

}  // namespace
}  // namespace inference_server
