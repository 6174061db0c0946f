// Steps that all ranks do or leave together: whatever a rank throws, and wherever, the others hear
// of it at once, nobody keeps gradients, and the next step is right.

#include <torch/nn.h>

#include <csignal>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/optim/clip_grad.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/sinew.h"
#include "sinew/tests/parallel/ranks/models.h"
#include "sinew/tests/parallel/ranks/served_test.h"
#include "sinew/tests/support/processes.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::Context;
using sinew::parallel::DdpOptions;
using sinew::parallel::DistributedDataParallel;
using sinew::testing::ChildProcess;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testranks::Batch;
using testranks::difference;
using testranks::error_of;
using testranks::grads_of;
using testranks::make_batch;
using testranks::mean_loss;
using testranks::Mlp;

namespace teststep {

/// What the server has.
class Rows {
 public:
  at::Tensor look_up(const at::Tensor& rows) const { return weight_.index({rows}); }

 private:
  const at::Tensor weight_ =
      at::arange(10 * Mlp::kInputs, at::kDouble).view({10, Mlp::kInputs}).sin().requires_grad_();
};

}  // namespace teststep

SINEW_SERVICE(teststep::Rows, (), look_up);

namespace {

using teststep::Rows;

/// An Mlp whose forward() also uses a buffer that all ranks have from rank 0.
class WithBuffer : public torch::nn::Module {
 public:
  explicit WithBuffer(std::uint64_t seed)
      : mlp(register_module("mlp", std::make_shared<Mlp>(seed))) {
    calls = register_buffer("calls", at::zeros({1}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& input, bool fails) {
    calls += 1;
    if (fails) throw std::runtime_error("forward() broke");
    return mlp->forward(input);
  }
  std::shared_ptr<Mlp> mlp;
  at::Tensor calls;
};

enum class Place { kNowhere, kBeforeForward, kInForward, kAfterForward, kInPass, kBehindPass };

class StepTogether : public testranks::ServedTest {
 protected:
  void SetUp() override {
    RankTest::SetUp();
    start_workers(sinew::serve<Rows>());
  }
  void TearDown() override { end_workers(); }

  /// A step that fails at ranks that are `faulty`, at a place. With `worker_` in a context.
  void step(DistributedDataParallel<WithBuffer>& ddp, bool in_context, Place place,
            std::vector<at::Tensor>* gradients = nullptr) const {
    const auto fail_at = [place](Place here) {
      if (place == here) throw std::runtime_error("the server is lost");
    };
    const Batch part = make_batch(3, 4 * size()).part(rank(), size());
    std::optional<Context> context;
    if (in_context) context.emplace(worker_);
    ddp.step_together([&] {
      fail_at(Place::kBeforeForward);
      const at::Tensor output = ddp.forward(part.input, place == Place::kInForward);
      if (place == Place::kInPass) {
        output.register_hook([](const at::Tensor&) { throw std::runtime_error("a hook broke"); });
      }
      fail_at(Place::kAfterForward);
      const at::Tensor loss = mean_loss(output, part.target);
      if (in_context) {
        sinew::autograd::backward(*context, {loss});
      } else {
        ddp.module()->zero_grad();
        loss.backward();
      }
      if (gradients != nullptr)
        *gradients = gradients_of(context.has_value() ? &*context : nullptr, *ddp.module());
      fail_at(Place::kBehindPass);
    });
  }
  /// Null: those that LibTorch's backward() has brought.
  static std::vector<at::Tensor> gradients_of(const Context* context,
                                              const torch::nn::Module& module) {
    if (context == nullptr) return grads_of(module);
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : module.parameters()) {
      gradients.push_back(sinew::autograd::gradient_of(*context, parameter));
    }
    return gradients;
  }
  std::vector<at::Tensor> whole_gradients() const {
    Mlp whole(4);
    const Batch batch = make_batch(3, 4 * size());
    mean_loss(whole.forward(batch.input), batch.target).backward();
    return grads_of(whole);
  }
  void expect_right(DistributedDataParallel<WithBuffer>& ddp, bool in_context) const {
    std::vector<at::Tensor> gradients;
    step(ddp, in_context, Place::kNowhere, &gradients);
    EXPECT_LT(difference(gradients, whole_gradients()), 1e-12);
  }
  static DdpOptions small_buckets() {
    DdpOptions options;
    options.bucket_bytes = 300;
    return options;
  }
};

TEST_F(StepTogether, ReturnsWhatTheStepReturns) {
  const auto model = std::make_shared<WithBuffer>(4);
  DistributedDataParallel ddp(model, group());
  EXPECT_EQ(ddp.step_together([] { return 3; }), 3);
  int number = 0;
  EXPECT_EQ(&ddp.step_together([&]() -> int& { return number; }), &number);
}

// The first step of a module is one of these too: what is made in it, all make.
TEST_F(StepTogether, WhereverItFailsOnOneRankTheOthersAreTold) {
  for (const bool in_context : {true, false}) {
    for (const Place place : {Place::kBeforeForward, Place::kInForward, Place::kAfterForward,
                              Place::kInPass, Place::kBehindPass}) {
      // LibTorch's reducer cannot go on within a pass: see below.
      if (place == Place::kInPass && !in_context) continue;
      SCOPED_TRACE(::testing::Message()
                   << "place " << static_cast<int>(place) << " in context " << in_context);
      const auto model = std::make_shared<WithBuffer>(4);
      DistributedDataParallel ddp(model, group(), small_buckets());
      for (const int faulty : {1, 0}) {
        if (rank() == faulty) {
          EXPECT_THROW(step(ddp, in_context, place), std::exception);
        } else if (place == Place::kBehindPass) {
          step(ddp, in_context, Place::kNowhere);
        } else {
          const RpcError error = error_of([&] { step(ddp, in_context, Place::kNowhere); });
          EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.message();
          EXPECT_THAT(error.message(),
                      AllOf(HasSubstr("failed on rank " + std::to_string(faulty) + ": "),
                            HasSubstr(place == Place::kInForward ? "forward() broke"
                                      : place == Place::kInPass  ? "a hook broke"
                                                                 : "the server is lost")));
        }
        expect_right(ddp, in_context);
        expect_right(ddp, in_context);
      }
    }
  }
}

TEST_F(StepTogether, AllMayFailAtOnceAndAgain) {
  for (const bool in_context : {true, false}) {
    const auto model = std::make_shared<WithBuffer>(4);
    DistributedDataParallel ddp(model, group());
    for (int attempt = 0; attempt < 4; ++attempt) {
      EXPECT_THROW(
          step(ddp, in_context, rank() % 2 == 0 ? Place::kBeforeForward : Place::kAfterForward),
          std::runtime_error);
    }
    expect_right(ddp, in_context);
  }
}

// A rank that left between two calls of forward() has made fewer of them.
TEST_F(StepTogether, RanksThatLeftAgreeAgainWhichCallIsWhich) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  for (int attempt = 0; attempt < 4; ++attempt) {
    const Context context(worker_);
    const bool all_fail = attempt == 2;
    const auto step = [&] {
      ddp.step_together([&] {
        const at::Tensor first = mean_loss(ddp.forward(part.input), part.target);
        if (attempt % 2 == 0 && rank() == 1) throw RpcError(ErrorCode::kUnavailable, "lost");
        const at::Tensor second = mean_loss(ddp.forward(part.input), part.target);
        if (all_fail) throw RpcError(ErrorCode::kUnavailable, "lost");
        sinew::autograd::backward(context, {(first + second) / 2});
      });
    };
    if (attempt % 2 == 0) {
      EXPECT_EQ(error_of(step).code(),
                rank() == 1 || all_fail ? ErrorCode::kUnavailable : ErrorCode::kAborted);
    } else {
      step();
      EXPECT_LT(difference(gradients_of(&context, *model), whole_gradients()), 1e-12);
    }
  }
}

// A rank that has failed twice while the others were busy with one step has not run ahead of them.
TEST_F(StepTogether, ManyFailuresOfOneRankAreOneStepEachForTheOthers) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  int failures = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const Context context(worker_);
    try {
      ddp.step_together([&] {
        if (rank() == 1 && attempt < 3) throw RpcError(ErrorCode::kUnavailable, "lost again");
        sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
        EXPECT_LT(difference(gradients_of(&context, *model), whole_gradients()), 1e-12);
      });
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), rank() == 1 ? ErrorCode::kUnavailable : ErrorCode::kAborted);
      EXPECT_TRUE(sinew::autograd::gradients(context).empty());
      ++failures;
    }
  }
  EXPECT_EQ(failures, 3);
}

// Optimizers step by themselves: what one has done where another one has failed, the next pass
// finds.
TEST_F(StepTogether, WhatIsChangedBehindAPassOnSomeRanksIsFoundByTheNextOne) {
  for (const bool in_context : {true, false}) {
    const auto model = std::make_shared<WithBuffer>(4);
    DistributedDataParallel ddp(model, group());
    const at::Tensor weight = model->parameters().front();
    if (rank() == 1) {
      EXPECT_THROW(step(ddp, in_context, Place::kBehindPass), std::runtime_error);
    } else {
      step(ddp, in_context, Place::kNowhere);
      const at::NoGradGuard no_grad;
      weight.add_(1);
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      const RpcError error = error_of([&] { step(ddp, in_context, Place::kNowhere); });
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.message();
      EXPECT_THAT(error.message(), AllOf(HasSubstr("have parted"), HasSubstr("step has failed")));
    }
    if (rank() != 1) {
      const at::NoGradGuard no_grad;
      weight.copy_(Mlp(4).parameters().front());
    }
    expect_right(ddp, in_context);
  }
}

// Ranks agree behind the pass too, and whoever never comes to that says so.
TEST_F(StepTogether, WhoLeavesBeforeGradientsAreClippedIsNotWaitedFor) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const sinew::RRef<at::Tensor> weight =
      sinew::make_rref(worker_, at::Tensor(model->parameters().front()));
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  const auto step = [&](bool fails, bool clips) {
    const Context context(worker_);
    ddp.step_together([&] {
      sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
      EXPECT_LT(difference(gradients_of(&context, *model), whole_gradients()), 1e-12);
      if (fails) throw std::runtime_error("the server is lost");
      if (clips) {
        const double norm = whole_gradients().front().norm().item<double>();
        EXPECT_NEAR(sinew::optim::clip_grad_norm_(context, {weight}, 1), norm, 1e-9);
      }
    });
  };
  // Also before all have clipped for the first time.
  for (const bool others_clip : {true, false}) {
    for (int faulty = 0; faulty < 2; ++faulty) {
      if (rank() == faulty) {
        EXPECT_THROW(step(true, true), std::runtime_error);
      } else if (!others_clip) {
        step(false, false);
      } else {
        const RpcError error = error_of([&] { step(false, true); });
        EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.message();
        EXPECT_THAT(error.message(),
                    HasSubstr("rank " + std::to_string(faulty) + " of the data-parallel"));
      }
    }
    for (int more = 0; more < 2; ++more) step(false, true);
  }
}

// Whose pass has begun says so by itself, and the step is not left a second time.
TEST_F(StepTogether, APassOfLibTorchThatBreaksOffIsAnErrorOfThisStepAlone) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group(), small_buckets());
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  bool is_broken = false;
  if (rank() == 1) {
    model->parameters().front().register_hook([&](const at::Tensor&) {
      if (is_broken) throw std::runtime_error("a hook broke");
    });
  }
  const auto run = [&] {
    ddp.zero_grad();
    ddp.step_together([&] { mean_loss(ddp.forward(part.input), part.target).backward(); });
  };
  run();
  const std::vector<at::Tensor> right = gradients_of(nullptr, *model);
  for (int times = 0; times < 2; ++times) {
    is_broken = true;
    if (rank() == 1) {
      EXPECT_THROW(run(), std::runtime_error);
    } else {
      const RpcError error = error_of(run);
      EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.message();
      EXPECT_THAT(error.message(), HasSubstr("failed on rank 1"));
    }
    is_broken = false;
    run();
    EXPECT_LT(difference(gradients_of(nullptr, *model), right), 1e-12);
  }
}

TEST_F(StepTogether, RefusesWhereItCannotHelp) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  const auto refuses = [](const std::function<void()>& call, const std::string& text) {
    const RpcError error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(text));
  };
  refuses([&] { ddp.step_together([&] { ddp.step_together([] {}); }); }, "in a step of it");
  refuses([&] { sinew::parallel::join({&ddp}, {}, [&] { ddp.step_together([] {}); }); },
          "in join()");
  refuses(
      [&] {
        ddp.step_together([&] {
          const Context context(worker_);
          sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
        });
      },
      "make the context before the step");
  refuses(
      [&] {
        const Context context(worker_);
        ddp.step_together([&] { mean_loss(ddp.forward(part.input), part.target).backward(); });
      },
      "call autograd::backward()");
  const Context context(worker_);
  ddp.step_together([&] {
    sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
  });
  EXPECT_LT(difference(gradients_of(&context, *model), whole_gradients()), 1e-12);
}

// ---- A server that is a process of its own, and is killed.

sinew::Worker join_open_job(const std::string& name, const std::string& job) {
  sinew::WorkerOptions options;
  options.name = name;
  options.init_method = "file://" + testranks::place().folder + "/" + job;
  options.methods = sinew::serve<Rows>();
  return sinew::init_rpc(options);
}

/// What runs in that process, by the name of the job.
TEST(DyingServer, ServesUntilItIsKilled) {
  const char* job = std::getenv("TEST_JOB");
  ASSERT_NE(job, nullptr) << "LostServer starts it";
  const sinew::Worker worker = join_open_job("server", job);
  worker.publish("rows", std::make_shared<Rows>());
  worker.serve_until_done();
}

class LostServer : public testranks::RankTest {
 protected:
  void SetUp() override {
    RankTest::SetUp();
    if (rank() == 0) start_server();
    worker_ = join_open_job("trainer" + std::to_string(rank()), kJob);
    rows_ = find_rows();
  }
  void TearDown() override {
    rows_ = {};
    group().barrier();
    server_.reset();
    worker_.shutdown();
  }
  void start_server() {
    server_.emplace(std::vector<std::string>{"/proc/self/exe",
                                             "--gtest_filter=DyingServer.ServesUntilItIsKilled"},
                    std::vector<std::string>{std::string("TEST_JOB=") + kJob});
  }
  sinew::RRef<Rows> find_rows() const {
    return worker_.find<Rows>("server/rows", std::chrono::minutes(2));
  }
  at::Tensor look_up() const {
    return rows_.call<&Rows::look_up>(at::tensor({rank(), 2 * rank() + 1, 5, 5}, at::kLong));
  }

  static constexpr const char* kJob = "lost_server";
  sinew::Worker worker_;
  sinew::RRef<Rows> rows_;
  std::optional<ChildProcess> server_;
};

// Those that had looked up wait for the rank that could not. With `frozen` rows their own passes
// would go well.
TEST_F(LostServer, EndsTheStepOnAllTrainersWhoGoOnWhenItIsBack) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  const auto step = [&](bool frozen, bool dies) {
    const Context context(worker_);
    ddp.step_together([&] {
      at::Tensor rows;
      if (rank() != 0) rows = look_up();
      group().barrier();
      if (rank() == 0 && dies) server_->signal(SIGKILL);
      if (rank() == 0) rows = look_up();
      const at::Tensor input = frozen ? rows.detach() : rows;
      sinew::autograd::backward(context, {mean_loss(ddp.forward(input), part.target)});
    });
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) {
      parameter.sub_(sinew::autograd::gradient_of(context, parameter), 0.1);
    }
  };
  const auto expect_equal = [&] {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& value : testranks::values_of(*model)) flat.push_back(value.flatten());
    const at::Tensor own = at::cat(flat);
    const at::Tensor of_rank_0 = own.clone();
    group().broadcast(of_rank_0, 0);
    EXPECT_TRUE(own.equal(of_rank_0));
  };
  for (const bool frozen : {true, false}) {
    step(frozen, /*dies=*/false);
    const std::vector<at::Tensor> before = testranks::values_of(*model);
    const RpcError error = error_of([&] { step(frozen, /*dies=*/true); });
    EXPECT_THAT(error.message(), HasSubstr("'server'"));
    // Without frozen rows each pass needs the server, and fails by itself or with that of rank 0.
    const bool is_told = rank() != 0 && (frozen || error.code() == ErrorCode::kAborted);
    EXPECT_EQ(error.code(), is_told ? ErrorCode::kAborted : ErrorCode::kUnavailable);
    EXPECT_THAT(error.message(), HasSubstr(is_told ? "failed on rank 0: " : "server"));
    EXPECT_EQ(difference(testranks::values_of(*model), before), 0);
    if (rank() == 0) start_server();
    rows_ = find_rows();
    for (int more = 0; more < 2; ++more) step(frozen, /*dies=*/false);
    EXPECT_GT(difference(testranks::values_of(*model), before), 1e-6);
    expect_equal();
  }
}

}  // namespace
