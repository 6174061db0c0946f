// Others who have a say in the gradients of leaves: when they hear of them, and that all is taken
// back when a pass fails.

#include "sinew/autograd/internal/leaf_reducer.h"
#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

using sinew::ErrorCode;
using sinew::Future;
using sinew::Promise;
using sinew::RpcError;
using sinew::autograd::backward;
using sinew::autograd::BackwardOptions;
using sinew::autograd::Context;
using sinew::autograd::gradient_of;
using sinew::internal::LeafReducer;
using sinew::internal::LeafReduction;
using sinew::internal::MutexLock;
using sinew::internal::reduce_in_current_context;
using sinew::testing::error_of;
using sinew::testing::last_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace reducers {

at::Tensor twice(const at::Tensor& input) { return input * 2; }
at::Tensor broken(const at::Tensor& input) {
  const at::Tensor output = input * 2;
  output.register_hook([](const at::Tensor&) { throw std::runtime_error("no gradient today"); });
  return output;
}
/// A parameter of the callee, which it reduces.
at::Tensor scaled(const at::Tensor& input);

}  // namespace reducers

SINEW_METHOD(reducers::twice, reducers::broken, reducers::scaled);

namespace {

at::Tensor leaf(double value) { return at::full({2}, value).set_requires_grad(true); }

/// Writes down what it hears, and multiplies gradients by ten.
class Recorder final : public LeafReducer, public std::enable_shared_from_this<Recorder> {
 public:
  explicit Recorder(std::vector<at::Tensor> leaves) : leaves_(std::move(leaves)) {}

  const std::vector<at::Tensor>& leaves() const override { return leaves_; }
  std::shared_ptr<LeafReduction> begin(const std::vector<Leaf>& leaves) override {
    std::string text = "begin";
    for (const Leaf& one : leaves) {
      text += one.reached ? " reached" : " unreached";
      if (one.so_far.defined()) text += "+";
    }
    note(text);
    return std::make_shared<Reduction>(shared_from_this(), leaves);
  }

  void note(const std::string& what) {
    MutexLock lock(mutex_);
    notes_.push_back(what);
  }
  std::vector<std::string> notes() const {
    MutexLock lock(mutex_);
    return notes_;
  }
  /// finish() waits for it.
  std::optional<Promise<void>> gate;

 private:
  class Reduction final : public LeafReduction {
   public:
    Reduction(std::shared_ptr<Recorder> recorder, const std::vector<Leaf>& leaves)
        : recorder_(std::move(recorder)) {
      for (const Leaf& one : leaves) sums_.push_back(one.so_far);
    }
    void on_gradient(std::size_t leaf, at::Tensor gradient) override {
      recorder_->note("gradient " + std::to_string(leaf));
      sums_[leaf] = sums_[leaf].defined() ? sums_[leaf] + gradient : gradient;
    }
    Future<std::vector<at::Tensor>> finish() override {
      recorder_->note("finish");
      std::vector<at::Tensor> results;
      for (const at::Tensor& sum : sums_) results.push_back(sum.defined() ? sum * 10 : sum);
      if (!recorder_->gate.has_value()) return sinew::make_ready_future(results);
      return recorder_->gate->future().then([results] { return results; });
    }
    void fail(const std::exception_ptr&) override { recorder_->note("fail"); }

   private:
    const std::shared_ptr<Recorder> recorder_;
    std::vector<at::Tensor> sums_;
  };

  const std::vector<at::Tensor> leaves_;
  mutable sinew::internal::Mutex mutex_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
};

struct Callee {
  at::Tensor weight = leaf(3);
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>(std::vector<at::Tensor>{weight});
};
std::shared_ptr<Callee>& callee() {
  static auto& callee = *new std::shared_ptr<Callee>();
  return callee;
}

}  // namespace

at::Tensor reducers::scaled(const at::Tensor& input) {
  EXPECT_TRUE(reduce_in_current_context(callee()->recorder));
  return input * callee()->weight;
}

namespace {

class LeafReducers : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    sinew::MethodTable methods;
    methods.add<&reducers::twice>().add<&reducers::broken>().add<&reducers::scaled>();
    start(2, methods);
    callee() = std::make_shared<Callee>();
  }
  void expect_no_pass() {
    for (int rank : {0, 1}) EXPECT_EVENTUALLY(worker(rank).counters()["autograd.passes"], 0);
  }
};

TEST_P(LeafReducers, ReplaceGradients) {
  const at::Tensor a = leaf(1);
  const at::Tensor b = leaf(2);
  const at::Tensor c = leaf(3);
  const auto recorder = std::make_shared<Recorder>(std::vector<at::Tensor>{a, b});
  EXPECT_FALSE(reduce_in_current_context(recorder)) << "there is no context";
  const Context context(worker(0));
  EXPECT_TRUE(reduce_in_current_context(recorder));
  EXPECT_TRUE(reduce_in_current_context(recorder)) << "twice for one pass";
  backward(context, {(worker(0).peer(1).call<&reducers::twice>(a) * c).sum()});
  EXPECT_THAT(recorder->notes(), ElementsAre("begin reached unreached", "gradient 0", "finish"));
  EXPECT_TRUE(gradient_of(context, a).equal(at::full({2}, 60.0)));
  EXPECT_FALSE(gradient_of(context, b).defined());
  EXPECT_TRUE(gradient_of(context, c).equal(at::full({2}, 2.0)));

  // It is asked again with what there is; and a pass that it did not ask for is none of its.
  EXPECT_TRUE(reduce_in_current_context(recorder));
  backward(context, {(a * b).sum()});
  EXPECT_EQ(last_of(recorder->notes()), "finish");
  EXPECT_EQ(recorder->notes().at(3), "begin reached+ reached");
  EXPECT_TRUE(gradient_of(context, a).equal(at::full({2}, 620.0)));
  backward(context, {(a * b).sum()});
  EXPECT_EQ(recorder->notes().size(), 7U);
  EXPECT_TRUE(gradient_of(context, a).equal(at::full({2}, 622.0)));
}

// The gradient of a leaf is there before nodes that come later in the pass have run.
TEST_P(LeafReducers, HearOfGradientsEarly) {
  const at::Tensor early = leaf(1);
  const at::Tensor late = leaf(2);
  const auto recorder = std::make_shared<Recorder>(std::vector<at::Tensor>{early, late});
  const Context context(worker(0));
  reduce_in_current_context(recorder);
  const at::Tensor first = late * 3;
  first.register_hook([&](const at::Tensor&) { recorder->note("hook"); });
  backward(context, {(first.exp() * early).sum()});
  EXPECT_THAT(recorder->notes(),
              ElementsAre("begin reached reached", "gradient 0", "hook", "gradient 1", "finish"));
}

TEST_P(LeafReducers, HearOfFailures) {
  const at::Tensor a = leaf(1);
  const auto recorder = std::make_shared<Recorder>(std::vector<at::Tensor>{a});
  const Context context(worker(0));
  reduce_in_current_context(recorder);
  const at::Tensor loss = (worker(0).peer(1).call<&reducers::broken>(a * 1) * a).sum();
  EXPECT_THAT(error_of([&] { backward(context, {loss}); }).message(),
              HasSubstr("no gradient today"));
  EXPECT_EQ(recorder->notes().at(0), "begin reached");
  EXPECT_EQ(last_of(recorder->notes()), "fail");
  EXPECT_FALSE(gradient_of(context, a).defined());
  expect_no_pass();
}

TEST_P(LeafReducers, AreWaitedForUntilTheDeadline) {
  const at::Tensor a = leaf(1);
  const auto recorder = std::make_shared<Recorder>(std::vector<at::Tensor>{a});
  recorder->gate.emplace();
  const Context context(worker(0));
  reduce_in_current_context(recorder);
  BackwardOptions options;
  options.timeout = std::chrono::seconds(3);
  const RpcError error = error_of([&] { backward(context, {(a * 2).sum()}, options); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.message(), HasSubstr("data-parallel module"));
  EXPECT_THAT(recorder->notes(), ElementsAre("begin reached", "gradient 0", "finish", "fail"));
  // What comes too late does not count.
  recorder->gate->set_value();
  expect_no_pass();
  EXPECT_FALSE(gradient_of(context, a).defined());
}

TEST_P(LeafReducers, TheirOwnFailureIsThatOfThePass) {
  const at::Tensor a = leaf(1);
  const auto recorder = std::make_shared<Recorder>(std::vector<at::Tensor>{a});
  recorder->gate.emplace();
  recorder->gate->set_error(RpcError(ErrorCode::kAborted, "another rank has failed"));
  const Context context(worker(0));
  reduce_in_current_context(recorder);
  const RpcError error = error_of([&] { backward(context, {(a * 2).sum()}); });
  EXPECT_EQ(error.code(), ErrorCode::kAborted);
  EXPECT_THAT(error.message(), HasSubstr("another rank has failed"));
  EXPECT_FALSE(gradient_of(context, a).defined());
}

// A step is left before its pass: whoever is no more in a pass hears of it, and only once.
TEST_P(LeafReducers, HearThatThereWillBeNoPass) {
  const at::Tensor a = leaf(1);
  const auto recorder = std::make_shared<Recorder>(std::vector<at::Tensor>{a});
  const std::exception_ptr error =
      std::make_exception_ptr(RpcError(ErrorCode::kUnavailable, "the server is lost"));
  sinew::internal::fail_in_current_context(error);
  const Context context(worker(0));
  reduce_in_current_context(recorder);
  for (int again = 0; again < 2; ++again) sinew::internal::fail_in_current_context(error);
  EXPECT_THAT(recorder->notes(), ElementsAre("begin unreached", "fail"));
  backward(context, {(a * 2).sum()});
  EXPECT_THAT(recorder->notes(), ElementsAre("begin unreached", "fail"));
  EXPECT_TRUE(gradient_of(context, a).equal(at::full_like(a, 2)));
}

TEST_P(LeafReducers, AtAWorkerThatTakesPart) {
  const at::Tensor a = leaf(2);
  const Context context(worker(0));
  const at::Tensor loss = worker(0).peer(1).call<&reducers::scaled>(a).sum();
  backward(context, {loss});
  EXPECT_TRUE(gradient_of(context, a).equal(at::full({2}, 3.0)));
  EXPECT_TRUE(gradient_of(worker(1), context.id(), callee()->weight).equal(at::full({2}, 20.0)));
  EXPECT_THAT(callee()->recorder->notes(), ElementsAre("begin reached", "gradient 0", "finish"));
}

// Its part was done when the pass failed at the initiator: what it has added is taken back.
TEST_P(LeafReducers, HearThatAPassHasFailedElsewhereLater) {
  const at::Tensor a = leaf(2);
  const Context context(worker(0));
  const at::Tensor input = a * 1;
  input.register_hook([](const at::Tensor&) { throw std::runtime_error("too late"); });
  const at::Tensor loss = worker(0).peer(1).call<&reducers::scaled>(input).sum();
  EXPECT_THAT(error_of([&] { backward(context, {loss}); }).message(), HasSubstr("too late"));
  EXPECT_EVENTUALLY(last_of(callee()->recorder->notes()), "fail");
  EXPECT_FALSE(gradient_of(worker(1), context.id(), callee()->weight).defined());
}

SINEW_INSTANTIATE_CLUSTER_TEST(LeafReducers);

}  // namespace
