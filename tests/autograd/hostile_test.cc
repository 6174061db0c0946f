// Word of contexts and passes from those whom they do not concern changes nothing: from a member of
// the job that takes no part, or one that takes part but was not asked. Others than members:
// grpc_outside_test.cc.

#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/autograd.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/sinew.h"
#include "sinew/tests/autograd/context_message.h"
#include "sinew/tests/support/cluster.h"

using sinew::ErrorCode;
using sinew::autograd::backward;
using sinew::autograd::BackwardOptions;
using sinew::autograd::Context;
using sinew::autograd::ContextId;
using sinew::autograd::gradient_of;
using sinew::testing::eventually;
using testgrad::write;
using namespace std::chrono_literals;

namespace testhostile {

using at::Tensor;

/// The weight of each worker.
Tensor& weight() {
  static sinew::internal::Mutex mutex;
  static auto& all = *new std::map<std::uint64_t, Tensor>();
  const sinew::internal::MutexLock lock(mutex);
  Tensor& mine = all[sinew::current_worker().info().incarnation.value];
  if (!mine.defined()) mine = at::full({2}, 3.0).set_requires_grad(true);
  return mine;
}
/// Its gradient is `x`.
Tensor weigh(const Tensor& x) { return weight() * x; }
Tensor gradient(const ContextId& context) {
  return gradient_of(sinew::current_worker(), context, weight());
}

}  // namespace testhostile
SINEW_METHOD(testhostile::weigh, testhostile::gradient);

namespace {

using at::Tensor;

constexpr int kTrainerRank = 0;
constexpr int kServerRank = 1;
constexpr int kEveRank = 2;

sinew::MethodTable methods() {
  sinew::MethodTable table;
  table.add<&testhostile::weigh>().add<&testhostile::gradient>();
  return table;
}

/// What somebody knows who counts: not the secret.
ContextId guessed(const ContextId& id) { return {id.creator, id.serial}; }

/// worker0 trains with a weight of worker1's. worker2 is the hostile one.
class HostileAutograd : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override { start(3, methods()); }

  sinew::proto::AutogradPass pass(const ContextId& id, int initiator, std::uint64_t serial) const {
    sinew::proto::AutogradPass pass;
    write(id, *pass.mutable_context());
    pass.set_initiator(worker(initiator).info().incarnation.value);
    pass.set_serial(serial);
    return pass;
  }

  /// A control call of the hostile member to worker1. What it was refused with; kOk: it was not.
  template <class Message>
  ErrorCode tell(const std::string& method, const Message& message) const {
    const auto answer =
        sinew::WorkerAccess::core(worker(kEveRank))
            ->control_call(worker(kServerRank).info(), method, message.SerializeAsString(), 30s);
    try {
      answer.wait();
    } catch (const sinew::RpcError& error) {
      return error.code();
    }
    return ErrorCode::kOk;
  }

  /// Says that contexts have ended; returns when worker1 has heard it.
  static void say_ended(const sinew::Worker& from, const sinew::Worker& to,
                        const sinew::proto::AutogradRelease& release) {
    std::promise<sinew::internal::CarrierEnd> end;
    sinew::WorkerAccess::core(from)->send_note(
        to.info(), "autograd", release.SerializeAsString(),
        [&](sinew::internal::CarrierEnd how) { end.set_value(how); });
    EXPECT_EQ(end.get_future().get(), sinew::internal::CarrierEnd::kAnswered);
  }

  /// A call of the hostile member to worker1.
  template <class Message>
  ErrorCode call(const std::string& method, const Message& message,
                 const std::vector<Tensor>& gradients = {}) const {
    sinew::CallOptions options;
    options.timeout = 30s;
    sinew::internal::CallBuilder call(worker(kEveRank).peer(kServerRank).with(options), method, "");
    call.argument().binary(message.SerializeAsString());
    for (const Tensor& gradient : gradients) call.argument().tensor(gradient);
    auto pending = std::make_unique<sinew::internal::TypedPendingCall<void>>(call.runner());
    const sinew::Future<void> done = pending->future();
    call.send(std::move(pending));
    try {
      done.wait();
    } catch (const sinew::RpcError& error) {
      return error.code();
    }
    return ErrorCode::kOk;
  }

  Tensor forward() const {
    return worker(kTrainerRank)
        .peer(kServerRank)
        .call<&testhostile::weigh>(at::full({2}, 5.0))
        .sum();
  }
  /// worker2 is called in the context, and calls worker1 in it.
  void let_eve_take_part(const Context& context) const {
    worker(kTrainerRank).peer(kEveRank).call<&testhostile::weigh>(at::ones({2}));
    // This thread works in the context as another worker.
    std::async(std::launch::async, [&] {
      const sinew::autograd::ContextScope scope(worker(kEveRank), context.id());
      worker(kEveRank).peer(kServerRank).call<&testhostile::weigh>(at::ones({2}));
    }).get();
  }
  /// The gradient of worker1's weight has come `times` times.
  void expect_gradient(const Context& context, int times) const {
    const Tensor got =
        worker(kTrainerRank).peer(kServerRank).call<&testhostile::gradient>(context.id());
    ASSERT_TRUE(got.defined());
    EXPECT_TRUE(at::allclose(got, at::full({2}, 5.0 * times))) << got;
  }
  static BackwardOptions retaining() {
    BackwardOptions options;
    options.retain_graph = true;
    return options;
  }
};

TEST_P(HostileAutograd, ReleaseOfContextsOfAnother) {
  for (int step = 1; step <= 3; ++step) {
    const Context context(worker(kTrainerRank));
    const Tensor loss = forward();
    sinew::proto::AutogradRelease release;
    sinew::proto::AutogradReleased& all = *release.add_contexts();
    write({context.id().creator, 1}, *all.mutable_context());
    all.set_live_from(std::uint64_t{1} << 60);
    sinew::proto::AutogradReleased& this_one = *release.add_contexts();
    write(guessed(context.id()), *this_one.mutable_context());
    // The number alone says nothing; nor does the name, from somebody who takes no part.
    sinew::proto::AutogradReleased& by_name = *release.add_contexts();
    write(context.id(), *by_name.mutable_context());
    say_ended(worker(kEveRank), worker(kServerRank), release);
    backward(context, {loss});
    expect_gradient(context, 1);
  }
}

TEST_P(HostileAutograd, AbortOfPassesOfAnother) {
  const Context context(worker(kTrainerRank));
  const Tensor loss = forward();
  backward(context, {loss}, retaining());
  for (const std::uint64_t serial : {std::uint64_t{1}, std::uint64_t{1000}}) {
    sinew::proto::AutogradAbort abort;
    *abort.mutable_pass() = pass(guessed(context.id()), kTrainerRank, serial);
    tell("sinew.autograd.abort", abort);
    *abort.mutable_pass() = pass(context.id(), kTrainerRank, serial);
    EXPECT_EQ(tell("sinew.autograd.abort", abort), ErrorCode::kPermissionDenied);
  }
  expect_gradient(context, 1);
  backward(context, {loss}, retaining());
  expect_gradient(context, 2);
}

TEST_P(HostileAutograd, AbortByOneThatTakesPart) {
  const Context context(worker(kTrainerRank));
  const Tensor loss = forward();
  let_eve_take_part(context);
  backward(context, {loss}, retaining());
  sinew::proto::AutogradAbort abort;
  *abort.mutable_pass() = pass(context.id(), kTrainerRank, 1);
  EXPECT_EQ(tell("sinew.autograd.abort", abort), ErrorCode::kPermissionDenied);
  sinew::proto::AutogradRun run;
  *run.mutable_pass() = pass(context.id(), kTrainerRank, 999);
  EXPECT_EQ(call("sinew.autograd.run", run), ErrorCode::kPermissionDenied);
  expect_gradient(context, 1);
  backward(context, {loss}, retaining());
  expect_gradient(context, 2);
}

// In a pass of its own a worker may ask once.
TEST_P(HostileAutograd, RequestsToTakePartThatComeAgain) {
  const Context context(worker(kTrainerRank));
  let_eve_take_part(context);
  sinew::proto::AutogradRun run;
  *run.mutable_pass() = pass(context.id(), kEveRank, 1000);
  // The first one that worker1 has sent: it waits for the gradients of that.
  sinew::proto::AutogradGradients& live = *run.add_live();
  live.set_message(1);
  live.add_indexes(0);
  auto first = std::async(std::launch::async, [&] { return call("sinew.autograd.run", run); });
  EXPECT_TRUE(eventually([&] { return worker(kServerRank).counters()["autograd.passes"] == 1; }));
  EXPECT_EQ(call("sinew.autograd.run", run), ErrorCode::kInvalidArgument);
  sinew::proto::AutogradAbort abort;
  *abort.mutable_pass() = run.pass();
  EXPECT_EQ(tell("sinew.autograd.abort", abort), ErrorCode::kOk);
  EXPECT_EQ(first.get(), ErrorCode::kAborted);
  EXPECT_EQ(call("sinew.autograd.run", run), ErrorCode::kAborted);
  EXPECT_EQ(worker(kServerRank).counters()["autograd.passes"], 0);
  const Tensor loss = forward();
  backward(context, {loss});
  expect_gradient(context, 1);
}

TEST_P(HostileAutograd, RequestsToTakePartInPassesOfAnother) {
  const Context context(worker(kTrainerRank));
  const Tensor loss = forward();
  for (const int initiator : {kTrainerRank, kEveRank}) {
    sinew::proto::AutogradRun run;
    *run.mutable_pass() = pass(guessed(context.id()), initiator, 1000);
    EXPECT_EQ(call("sinew.autograd.run", run), ErrorCode::kNotFound);
    *run.mutable_pass() = pass(context.id(), kTrainerRank, 1000);
    EXPECT_EQ(call("sinew.autograd.run", run), ErrorCode::kPermissionDenied);
  }
  EXPECT_EQ(worker(kServerRank).counters()["autograd.passes"], 0);
  backward(context, {loss});
  expect_gradient(context, 1);
}

TEST_P(HostileAutograd, GradientsForMessagesToOthers) {
  const Context context(worker(kTrainerRank));
  const Tensor loss = forward();
  const auto delivery = [&](const ContextId& id) {
    sinew::proto::AutogradDelivery brought;
    *brought.mutable_pass() = pass(id, kTrainerRank, 1);
    // The first one that worker1 has sent.
    sinew::proto::AutogradGradients& gradients = *brought.add_gradients();
    gradients.set_message(1);
    gradients.add_indexes(0);
    return brought;
  };
  const std::vector<Tensor> wrong = {at::full({2}, 100.0)};
  EXPECT_EQ(call("sinew.autograd.gradients", delivery(guessed(context.id())), wrong),
            ErrorCode::kNotFound);
  EXPECT_EQ(call("sinew.autograd.gradients", delivery(context.id()), wrong),
            ErrorCode::kPermissionDenied);
  // Nor when it takes part: the message went to somebody else.
  let_eve_take_part(context);
  EXPECT_EQ(call("sinew.autograd.gradients", delivery(context.id()), wrong),
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(worker(kServerRank).counters()["autograd.passes"], 0);
  backward(context, {loss});
  expect_gradient(context, 1);
}

TEST_P(HostileAutograd, QuestionsAboutContextsOfOthers) {
  const Context context(worker(kTrainerRank));
  const Tensor loss = forward();
  sinew::proto::AutogradFactsRequest request;
  write(guessed(context.id()), *request.mutable_context());
  EXPECT_EQ(call("sinew.autograd.facts", request), ErrorCode::kNotFound);
}

// A context ends when its creator says so, whatever else it said before.
TEST_P(HostileAutograd, TheCreatorEndsAllAtOnce) {
  const auto at_server = [this] { return worker(kServerRank).counters()["autograd.contexts"]; };
  {
    const Context context(worker(kTrainerRank));
    forward();
    ASSERT_EQ(at_server(), 1);
    sinew::proto::AutogradRelease release;
    sinew::proto::AutogradReleased& all = *release.add_contexts();
    write({context.id().creator, 0}, *all.mutable_context());
    all.set_live_from(context.id().serial + 1);
    say_ended(worker(kTrainerRank), worker(kServerRank), release);
    EXPECT_EQ(at_server(), 0);
  }
  const Context next(worker(kTrainerRank));
  backward(next, {forward()});
  expect_gradient(next, 1);
}

SINEW_INSTANTIATE_CLUSTER_TEST(HostileAutograd);

}  // namespace
