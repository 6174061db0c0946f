// Who may call which method, and how much of it is served at once.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "sinew/tests/support/cluster.h"

namespace ruled {

/// Tells that it was decoded.
struct Key {
  std::int64_t value = 0;
};
std::atomic<int> decoded{0};

std::int64_t train(const Key& key) { return key.value; }
std::int64_t judge(const Key& key) { return key.value; }
std::vector<std::string> identities() { return sinew::CallContext::current().identities(); }
int judge_here();

class Model {
 public:
  explicit Model(int size) : size_(size) {}
  int size() { return size_; }
  int grow() { return ++size_; }

 private:
  int size_;
};

/// Answers when it is told to.
std::mutex mutex;
std::map<int, sinew::Promise<int>> parked;
int came = 0;

sinew::Future<int> park(int number, const at::Tensor& load) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++came;
  if (!load.defined()) throw std::runtime_error("nothing to park");
  return parked[number].future();
}
sinew::Promise<int> take(int number) {
  const std::lock_guard<std::mutex> lock(mutex);
  sinew::Promise<int> promise = std::move(parked.at(number));
  parked.erase(number);
  return promise;
}
/// Leaves something behind that knows the call, and so keeps it in memory when it has been
/// answered.
int leave_behind() {
  const std::lock_guard<std::mutex> lock(mutex);
  parked[0].future().then([](int) {});
  return ++came;
}
bool has_come(int count) {
  return sinew::testing::eventually([count] {
    const std::lock_guard<std::mutex> lock(mutex);
    return came >= count;
  });
}

}  // namespace ruled

template <>
struct sinew::Codec<ruled::Key> {
  static void encode(ValueWriter& writer, const ruled::Key& key) { writer.integer(key.value); }
  static ruled::Key decode(const ValueReader& reader) {
    ++ruled::decoded;
    return ruled::Key{reader.integer()};
  }
  static std::string signature() { return "integer"; }
};

SINEW_METHOD(ruled::train, ruled::judge, ruled::judge_here, ruled::identities, ruled::park,
             ruled::leave_behind);
SINEW_SERVICE(ruled::Model, (int), size);
SINEW_METHOD(ruled::Model::grow);

int ruled::judge_here() {
  const sinew::Worker here = sinew::current_worker();
  return static_cast<int>(here.peer(here.info()).call<&ruled::judge>(Key{7}));
}

namespace sinew {
namespace {

using testing::error_of;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

void expect_refused(const RpcError& error, ErrorCode code) {
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_EQ(error.execution(), Execution::kDidNotRun) << error.what();
}

class Rules : public testing::ClusterTest {
 protected:
  void SetUp() override {
    ruled::decoded = ruled::came = 0;
    ruled::parked.clear();
  }
  std::int64_t count(int rank, const std::string& name) const {
    return worker(rank).counters().at(name);
  }
  Peer callee() const { return worker(0).peer(1); }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Rules);

TEST_P(Rules, OnlyWhoIsAllowedCalls) {
  MethodTable methods;
  methods.add<&ruled::train>(allow("trainer.*", "worker0"))
      .add<&ruled::judge>(allow("judge", "worker2"))
      .add<&ruled::judge_here>()
      .add<&ruled::identities>();
  start(3, methods);
  EXPECT_EQ(callee().call<&ruled::train>(ruled::Key{5}), 5);
  EXPECT_EQ(worker(2).peer(1).call<&ruled::judge>(ruled::Key{6}), 6);
  EXPECT_EQ(ruled::decoded, 2);

  const RpcError refused = error_of([&] { callee().call<&ruled::judge>(ruled::Key{5}); });
  expect_refused(refused, ErrorCode::kPermissionDenied);
  EXPECT_EQ(refused.message(),
            "worker 'worker0', without a certificate that proves a name, may not call method "
            "'ruled::judge' of worker 'worker1': no pattern of its rules covers the caller");
  EXPECT_THAT(refused.message(), Not(HasSubstr("worker2")));
  expect_refused(error_of([&] { callee().async<&ruled::judge>(ruled::Key{5}).wait(); }),
                 ErrorCode::kPermissionDenied);
  const RRef<std::int64_t> result = callee().remote<&ruled::judge>(ruled::Key{5});
  EXPECT_EQ(error_of([&] { result.to_here(); }).code(), ErrorCode::kPermissionDenied);
  // A worker that calls itself is nothing special.
  expect_refused(error_of([&] { worker(0).peer(0).call<&ruled::judge>(ruled::Key{5}); }),
                 ErrorCode::kPermissionDenied);
  EXPECT_EQ(worker(2).peer(2).call<&ruled::judge>(ruled::Key{8}), 8);
  // Who calls for somebody else is asked in its own name.
  EXPECT_EQ(error_of([&] { worker(2).peer(1).call<&ruled::judge_here>(); }).code(),
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(ruled::decoded, 3);
  EXPECT_EQ(count(1, "rpc.calls_not_allowed"), 4);
  EXPECT_EQ(count(0, "rpc.calls_not_allowed"), 1);
  EXPECT_THAT(callee().call<&ruled::identities>(), IsEmpty());
}

TEST_P(Rules, OfAServiceAndOfMethodsBesides) {
  start(2, serve<ruled::Model>(allow("worker0")).add<&ruled::Model::grow>(allow("worker1")));
  const RRef<ruled::Model> model = callee().remote<ruled::Model>(3);
  EXPECT_EQ(model.call<&ruled::Model::size>(), 3);
  expect_refused(error_of([&] { model.call<&ruled::Model::grow>(); }),
                 ErrorCode::kPermissionDenied);
  EXPECT_EQ(model.call<&ruled::Model::size>(), 3);
  const RRef<ruled::Model> other = worker(1).peer(0).remote<ruled::Model>(4);
  EXPECT_EQ(error_of([&] { other.created().wait(); }).code(), ErrorCode::kPermissionDenied);
}

TEST(RulesTable, OneMethodHasOneSetOfRules) {
  MethodTable methods;
  methods.add<&ruled::train>(allow("a")).add<&ruled::train>(allow("a"));
  const RpcError error = error_of([&] { methods.add<&ruled::train>(); });
  EXPECT_EQ(error.code(), ErrorCode::kAlreadyExists);
  EXPECT_THAT(error.message(), HasSubstr("'ruled::train' was added before with other rules"));
  EXPECT_EQ(error_of([&] { methods.add<&ruled::train>(allow("a").limit_calls(1)); }).code(),
            ErrorCode::kAlreadyExists);
}

// ---- Methods of layers.

TEST_P(Rules, LayersMethodsAreRestrictedToo) {
  MethodTable methods = serve<ruled::Model>();
  methods.restrict("sinew.fetch", allow("worker1", "worker2"))
      .restrict("sinew.names.*", allow("worker2"))
      .restrict("sinew.methods", allow("worker2"));
  start(3, methods, [](int, WorkerOptions& options) { options.list_methods = true; });
  const RRef<ruled::Model> model = callee().remote<ruled::Model>(3);
  // Its own methods are nobody's layer.
  EXPECT_EQ(model.call<&ruled::Model::size>(), 3);

  // A method of a call's lane.
  const RRef<int> size = model.remote<&ruled::Model::size>();
  size.created().wait();
  ::testing::internal::CaptureStderr();
  const RpcError fetched = error_of([&] { size.to_here(); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[sinew worker1] worker 'worker0', without a certificate that proves a "
                        "name, may not call method 'sinew.fetch': it came from "));
  EXPECT_EQ(fetched.code(), ErrorCode::kPermissionDenied);
  EXPECT_EQ(fetched.message(),
            "worker 'worker0', without a certificate that proves a name, may not call method "
            "'sinew.fetch' of worker 'worker1': no pattern of its rules covers the caller");
  // One of the control lane.
  worker(1).publish("here", std::make_shared<ruled::Model>(9));
  const auto find = [this](int rank) { return worker(rank).find<ruled::Model>("worker1/here"); };
  EXPECT_EQ(error_of([&] { find(0); }).code(), ErrorCode::kPermissionDenied);
  EXPECT_EQ(find(2).call<&ruled::Model::size>(), 9);
  // Each refusal counts; the job itself goes on.
  EXPECT_GE(count(1, "rpc.calls_not_allowed"), 2);
  EXPECT_EQ(model.call<&ruled::Model::size>(), 3);
  worker(1).unpublish("here");
}

TEST(RulesTable, RestrictionsAreOfLayersThatAreThere) {
  MethodTable methods;
  EXPECT_EQ(error_of([&] { methods.restrict("app::*", allow("a")); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { methods.restrict("sinew.*", allow("a").limit_calls(1)); }).code(),
            ErrorCode::kInvalidArgument);
  methods.restrict("sinew.optm.*", allow("a"));
  WorkerOptions options;
  options.name = "alone";
  options.methods = methods;
  options.init_method = "inproc://here";
  options.network = std::make_shared<internal::InprocNetwork>();
  const RpcError error = error_of([&] { init_rpc(options); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(),
              HasSubstr("restrict(\"sinew.optm.*\") matches no method of the layers"));
  EXPECT_THAT(error.message(), HasSubstr("sinew.autograd.*, sinew.device.*, sinew.fetch, "));
  EXPECT_THAT(error.message(), Not(HasSubstr("sinew.worker")));
}

TEST(RulesTable, TheFirstPatternThatMatchesCounts) {
  MethodTable methods;
  methods.restrict("sinew.optim.step", allow("*")).restrict("sinew.optim.*", allow("a"));
  EXPECT_TRUE(methods.restriction("sinew.optim.step")->allows("b", {}));
  EXPECT_FALSE(methods.restriction("sinew.optim.save")->allows("b", {}));
  EXPECT_EQ(methods.restriction("sinew.names.get"), nullptr);
  // The job would not run without them.
  EXPECT_EQ(MethodTable(methods).restrict("sinew.*", allow("a")).restriction("sinew.link.ask"),
            nullptr);
}

// ---- Limits.

const at::Tensor& small() {
  static const at::Tensor tensor = at::ones({4});
  return tensor;
}

TEST_P(Rules, PendingFuturesCount) {
  MethodTable methods;
  methods.add<&ruled::park>(MethodRules().limit_calls(2)).add<&ruled::train>();
  start(2, methods);
  const Future<int> first = callee().async<&ruled::park>(1, small());
  ASSERT_TRUE(ruled::has_come(1));
  const Future<int> second = callee().async<&ruled::park>(2, small());
  ASSERT_TRUE(ruled::has_come(2));
  EXPECT_EQ(count(1, "rpc.limited_calls"), 2);
  const RpcError third = error_of([&] { callee().call<&ruled::park>(3, small()); });
  expect_refused(third, ErrorCode::kResourceExhausted);
  EXPECT_EQ(third.message(),
            "method 'ruled::park' of worker 'worker1' has no room: it serves 2 calls at once, and "
            "that many are under way");
  // Nobody else's business.
  EXPECT_EQ(callee().call<&ruled::train>(ruled::Key{1}), 1);
  EXPECT_EQ(count(1, "rpc.calls_over_limit"), 1);
  // The table is the same, the worker is not.
  const Future<int> elsewhere = worker(1).peer(0).async<&ruled::park>(4, small());
  ASSERT_TRUE(ruled::has_come(3));

  ruled::take(1).set_value(10);
  EXPECT_EQ(first.wait(), 10);
  const Future<int> fifth = callee().async<&ruled::park>(5, small());
  ASSERT_TRUE(ruled::has_come(4));
  ruled::take(2).set_error(RpcError(ErrorCode::kDataLoss, "lost"));
  EXPECT_EQ(error_of([&] { second.wait(); }).code(), ErrorCode::kDataLoss);
  ruled::take(5).set_value(50);
  ruled::take(4).set_value(40);
  EXPECT_EQ(fifth.wait(), 50);
  EXPECT_EQ(elsewhere.wait(), 40);
  EXPECT_EQ(count(1, "rpc.limited_calls"), 0);
}

// Who waits for each answer must never meet the share of the call before.
TEST_P(Rules, OneCallAfterTheOtherIsNeverTooMany) {
  MethodTable methods;
  methods.add<&ruled::train>(MethodRules().limit_calls(1))
      .serve<ruled::Model>(MethodRules().limit_calls(1))
      .add<&ruled::park>(MethodRules().limit_calls(1));
  start(2, methods);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(callee().call<&ruled::train>(ruled::Key{i}), i);
    callee().remote<ruled::Model>(i).created().wait();
    ASSERT_THAT(error_of([&] { callee().call<&ruled::park>(1, at::Tensor()); }).remote_message(),
                "nothing to park");
  }
  EXPECT_EQ(count(1, "rpc.calls_over_limit"), 0);
}

TEST_P(Rules, WhatHasBeenAnsweredDoesNotCount) {
  MethodTable methods;
  methods.add<&ruled::leave_behind>(MethodRules().limit_calls(1));
  start(2, methods);
  EXPECT_EQ(callee().call<&ruled::leave_behind>(), 1);
  EXPECT_EQ(count(1, "rpc.limited_calls"), 0);
  EXPECT_EQ(callee().call<&ruled::leave_behind>(), 2);
  ruled::take(0).set_value(0);
}

TEST_P(Rules, BytesAtOnce) {
  constexpr std::int64_t kElements = 1000;
  MethodTable methods;
  methods.add<&ruled::park>(MethodRules().limit_bytes(2 * 4 * kElements + 2000));
  start(2, methods);
  const at::Tensor load = at::ones({kElements});
  const Future<int> first = callee().async<&ruled::park>(1, load);
  ASSERT_TRUE(ruled::has_come(1));
  const Future<int> second = callee().async<&ruled::park>(2, load);
  ASSERT_TRUE(ruled::has_come(2));
  const RpcError third = error_of([&] { callee().call<&ruled::park>(3, load); });
  expect_refused(third, ErrorCode::kResourceExhausted);
  EXPECT_THAT(third.message(), HasSubstr("it takes 10000 bytes of arguments at once"));
  const RpcError alone =
      error_of([&] { callee().call<&ruled::park>(3, at::ones({4 * kElements})); });
  expect_refused(alone, ErrorCode::kResourceExhausted);
  EXPECT_THAT(alone.message(), HasSubstr("and it takes 10000 at once at most"));
  const Future<int> fourth = callee().async<&ruled::park>(4, small());
  ASSERT_TRUE(ruled::has_come(3));
  for (const int number : {1, 2, 4}) ruled::take(number).set_value(number);
  EXPECT_EQ(first.wait() + second.wait() + fourth.wait(), 7);
}

// A handler that nobody waits for any more works on, so it counts until it has ended.
TEST_P(Rules, CancelledCallsCountUntilTheirHandlersEnd) {
  MethodTable methods;
  methods.add<&ruled::park>(MethodRules().limit_calls(1));
  start(2, methods);
  CancellationSource source;
  CallOptions options;
  options.cancellation = source.token();
  const Future<int> first = callee().with(options).async<&ruled::park>(1, small());
  ASSERT_TRUE(ruled::has_come(1));
  source.cancel();
  EXPECT_EQ(error_of([&] { first.wait(); }).code(), ErrorCode::kCancelled);
  EXPECT_EQ(error_of([&] { callee().call<&ruled::park>(2, small()); }).code(),
            ErrorCode::kResourceExhausted);
  ruled::take(1).set_value(1);
  // No answer tells that it has ended.
  ASSERT_TRUE(sinew::testing::eventually([&] { return count(1, "rpc.limited_calls") == 0; }));
  const Future<int> third = callee().async<&ruled::park>(3, small());
  ASSERT_TRUE(ruled::has_come(2));
  // Forgotten.
  { const Promise<int> dropped = ruled::take(3); }
  EXPECT_NE(error_of([&] { third.wait(); }).code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(count(1, "rpc.limited_calls"), 0);
}

TEST_P(Rules, ACallerThatIsGoneLeavesNothingBehind) {
  MethodTable methods;
  methods.add<&ruled::park>(MethodRules().limit_calls(1)).add<&ruled::train>();
  start(3, methods);
  const Future<int> first = callee().async<&ruled::park>(1, small());
  ASSERT_TRUE(ruled::has_come(1));
  ShutdownOptions now;
  now.graceful = false;
  worker(0).shutdown(now);
  EXPECT_EQ(count(1, "rpc.limited_calls"), 1);
  ruled::take(1).set_value(1);
  EXPECT_TRUE(eventually([&] { return count(1, "rpc.limited_calls") == 0; }));
  const Future<int> second = worker(2).peer(1).async<&ruled::park>(2, small());
  ASSERT_TRUE(ruled::has_come(2));
  // The callee ends before the handler does.
  worker(1).shutdown(now);
  error_of([&] { second.wait(); });
  ruled::take(2).set_value(2);
  EXPECT_EQ(count(1, "rpc.limited_calls"), 0);
  abandon();
}

}  // namespace
}  // namespace sinew
