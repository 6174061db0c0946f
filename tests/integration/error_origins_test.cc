// Where the error of a call arose, and whether the call may have run: at every place that makes
// one.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "sinew/tests/support/cluster.h"

namespace origins {

int print(const std::string& how) {
  if (how == "throws") throw std::runtime_error("tray 2 is empty");
  if (how == "throws a number") throw 42;
  if (how == "throws an RpcError") {
    throw sinew::RpcError(sinew::ErrorCode::kDataLoss, "the disk has gone");
  }
  if (how == "rejects") throw sinew::Rejected(sinew::ErrorCode::kUnavailable, "no paper today");
  return 1;
}
sinew::Future<int> print_later(const std::string& how) {
  return sinew::make_ready_future(how).then(&print);
}
sinew::Future<int> reject_later() {
  sinew::Promise<int> promise;
  promise.set_error(std::make_exception_ptr(
      sinew::Rejected(sinew::ErrorCode::kResourceExhausted, "the queue is full")));
  return promise.future();
}
/// Answers when the test is over.
std::mutex mutex;
std::vector<sinew::Promise<int>> promises;
sinew::Future<int> never() {
  const std::lock_guard<std::mutex> lock(mutex);
  return promises.emplace_back().future();
}
bool has_come(std::size_t count) {
  return sinew::testing::eventually([count] {
    const std::lock_guard<std::mutex> lock(mutex);
    return promises.size() >= count;
  });
}

class Printer {
 public:
  explicit Printer(int trays) {
    if (trays == 0) throw std::runtime_error("no trays");
  }
  int pages() { return 3; }
};

std::atomic<int> ran{0};
int missing() { return ++ran; }
int reserved() { return ++ran; }
/// As seen by two programs that were built from different sources.
int shape_number(int x) { return ++ran + x; }
std::string shape_text(const std::string& x) { return x; }
int count_many() { return 300; }
std::uint8_t count_few() { return 1; }
int take_number(int number) { return ++ran + number; }
int take_byte(std::uint8_t byte) { return ++ran + byte; }

// Each calls its caller.
int print_there(const std::string& how);
sinew::Future<int> print_there_later(const std::string& how);
/// Goes there and back again.
int print_twice_there(const std::string& how);
int explain(const std::string& how);
int miss_there();
int wait_there();
int make_there();

}  // namespace origins

SINEW_METHOD(origins::print, origins::print_later, origins::reject_later, origins::never);
SINEW_SERVICE(origins::Printer, (int), pages);
SINEW_METHOD(origins::missing, origins::reserved);
SINEW_METHOD_AS("origins::shape", &origins::shape_number);
SINEW_METHOD_AS("origins::shape", &origins::shape_text);
SINEW_METHOD_AS("origins::count", &origins::count_many);
SINEW_METHOD_AS("origins::count", &origins::count_few);
SINEW_METHOD_AS("origins::take", &origins::take_number);
SINEW_METHOD_AS("origins::take", &origins::take_byte);
SINEW_METHOD(origins::print_there, origins::print_there_later, origins::print_twice_there,
             origins::explain, origins::miss_there, origins::wait_there, origins::make_there);

namespace {

sinew::Peer caller() {
  return sinew::current_worker().peer(sinew::CallContext::current().caller());
}

}  // namespace

int origins::print_there(const std::string& how) {
  return sinew::rpc_sync<&origins::print>(caller(), how);
}
sinew::Future<int> origins::print_there_later(const std::string& how) {
  return sinew::rpc_async<&origins::print>(caller(), how).then([](int pages) { return pages + 1; });
}
int origins::print_twice_there(const std::string& how) {
  return sinew::rpc_sync<&origins::print_there>(caller(), how);
}
int origins::explain(const std::string& how) {
  try {
    return sinew::rpc_sync<&origins::print>(caller(), how);
  } catch (const sinew::RpcError& error) {
    throw sinew::RpcError(sinew::ErrorCode::kAborted, "of no use: " + error.message());
  }
}
int origins::miss_there() { return sinew::rpc_sync<&origins::missing>(caller()); }
int origins::wait_there() {
  sinew::CallOptions soon;
  soon.timeout = std::chrono::seconds(1);
  return sinew::rpc_sync<&origins::never>(caller().with(soon));
}
int origins::make_there() {
  sinew::remote<&origins::print>(caller(), "throws").created().wait();
  return 0;
}

namespace sinew {
namespace {

using testing::error_of;

MethodTable error_origins_table() {
  MethodTable methods;
  methods.add<&origins::print>()
      .add<&origins::print_later>()
      .add<&origins::reject_later>()
      .add<&origins::never>(MethodRules().limit_calls(3))
      .serve<origins::Printer>()
      .add<&origins::reserved>(allow("worker7"))
      .add<&origins::shape_number>()
      .add<&origins::count_many>()
      .add<&origins::take_byte>()
      .add<&origins::print_there>()
      .add<&origins::print_there_later>()
      .add<&origins::print_twice_there>()
      .add<&origins::explain>()
      .add<&origins::miss_there>()
      .add<&origins::wait_there>()
      .add<&origins::make_there>();
  return methods;
}

class ErrorOrigins : public testing::ClusterTest {
 protected:
  void SetUp() override {
    origins::ran = 0;
    start(2, error_origins_table());
  }
  void TearDown() override {
    answer_all();
    ClusterTest::TearDown();
  }
  static void answer_all() {
    const std::lock_guard<std::mutex> lock(origins::mutex);
    for (const Promise<int>& promise : origins::promises) promise.set_value(1);
    origins::promises.clear();
  }
  Peer callee() const { return worker(0).peer(1); }
  void print(const std::string& how) const { rpc_sync<&origins::print>(callee(), how); }
};
SINEW_INSTANTIATE_CLUSTER_TEST(ErrorOrigins);

struct Failed {
  const char* what;
  std::function<void()> call;
  ErrorOrigin origin;
  Execution execution;
  /// Of its causes, and where the last one arose.
  std::vector<std::string> methods = {};
  ErrorOrigin root = ErrorOrigin::kHandler;
};

void expect_all(const std::vector<Failed>& failures) {
  for (const Failed& each : failures) {
    SCOPED_TRACE(each.what);
    const RpcError error = error_of(each.call);
    EXPECT_EQ(error.origin(), each.origin) << error.what();
    EXPECT_EQ(error.execution(), each.execution) << error.what();
    std::vector<std::string> methods;
    for (const FailedCall& cause : error.causes()) methods.push_back(cause.method);
    EXPECT_EQ(methods, each.methods) << error.what();
    if (!error.causes().empty()) {
      EXPECT_EQ(error.causes().back().origin, each.root);
    }
  }
}

TEST_P(ErrorOrigins, FromThisWorkerOrTheNetwork) {
  const auto with = [this](const std::function<void(CallOptions&)>& set) {
    CallOptions options;
    set(options);
    return callee().with(options);
  };
  CancellationSource cancelled;
  cancelled.cancel();
  expect_all({
      {"a timeout that makes no sense",
       [&] {
         rpc_sync<&origins::missing>(
             with([](CallOptions& options) { options.timeout = std::chrono::seconds(0); }));
       },
       ErrorOrigin::kThisWorker, Execution::kDidNotRun},
      {"cancelled before it was sent",
       [&] {
         rpc_sync<&origins::never>(
             with([&](CallOptions& options) { options.cancellation = cancelled.token(); }));
       },
       ErrorOrigin::kThisWorker, Execution::kDidNotRun},
      {"nobody answers",
       [&] {
         rpc_sync<&origins::never>(
             with([](CallOptions& options) { options.timeout = std::chrono::seconds(1); }));
       },
       ErrorOrigin::kNetwork, Execution::kMayHaveRun},
      {"a result that is none of ours", [&] { rpc_sync<&origins::count_few>(callee()); },
       ErrorOrigin::kThisWorker, Execution::kMayHaveRun},
  });
}

TEST_P(ErrorOrigins, FromTheCallee) {
  expect_all({
      {"no such method", [&] { rpc_sync<&origins::missing>(callee()); }, ErrorOrigin::kCallee,
       Execution::kDidNotRun},
      {"no such method, kept", [&] { remote<&origins::missing>(callee()).created().wait(); },
       ErrorOrigin::kCallee, Execution::kDidNotRun},
      {"another signature", [&] { rpc_sync<&origins::shape_text>(callee(), "x"); },
       ErrorOrigin::kCallee, Execution::kDidNotRun},
      {"not allowed", [&] { rpc_sync<&origins::reserved>(callee()); }, ErrorOrigin::kCallee,
       Execution::kDidNotRun},
      {"an argument that is none", [&] { rpc_sync<&origins::take_number>(callee(), 300); },
       ErrorOrigin::kCallee, Execution::kDidNotRun},
  });
  EXPECT_EQ(origins::ran, 0);
  std::vector<Future<int>> pending;
  for (int i = 0; i < 3; ++i) pending.push_back(rpc_async<&origins::never>(callee()));
  ASSERT_TRUE(origins::has_come(3));
  expect_all({{"no room", [&] { rpc_sync<&origins::never>(callee()); }, ErrorOrigin::kCallee,
               Execution::kDidNotRun}});
  answer_all();
  for (const Future<int>& each : pending) EXPECT_EQ(each.wait(), 1);
}

TEST_P(ErrorOrigins, FromTheHandler) {
  constexpr auto kHandler = ErrorOrigin::kHandler;
  expect_all({
      {"thrown", [&] { print("throws"); }, kHandler, Execution::kMayHaveRun},
      {"a number", [&] { print("throws a number"); }, kHandler, Execution::kMayHaveRun},
      {"an RpcError", [&] { rpc_sync<&origins::print>(callee(), "throws an RpcError"); }, kHandler,
       Execution::kMayHaveRun},
      {"a future", [&] { rpc_sync<&origins::print_later>(callee(), "throws a number"); }, kHandler,
       Execution::kMayHaveRun},
      {"before a future", [&] { rpc_async<&origins::print_later>(callee(), "throws").wait(); },
       kHandler, Execution::kMayHaveRun},
      {"rejected", [&] { print("rejects"); }, kHandler, Execution::kDidNotRun},
      {"rejected later", [&] { rpc_sync<&origins::reject_later>(callee()); }, kHandler,
       Execution::kDidNotRun},
      {"rejected, with a continuation",
       [&] { rpc_async<&origins::reject_later>(callee()).then([](int) {}).wait(); }, kHandler,
       Execution::kDidNotRun},
      {"rejected, kept", [&] { remote<&origins::print>(callee(), "rejects").created().wait(); },
       kHandler, Execution::kDidNotRun},
      {"a constructor", [&] { remote<origins::Printer>(callee(), 0).created().wait(); }, kHandler,
       Execution::kMayHaveRun},
      {"its object",
       [&] { rpc_sync<&origins::Printer::pages>(remote<origins::Printer>(callee(), 0)); }, kHandler,
       Execution::kMayHaveRun},
      {"a fetch", [&] { remote<&origins::print>(callee(), "throws").to_here(); }, kHandler,
       Execution::kMayHaveRun},
      {"what it made of another error", [&] { rpc_sync<&origins::explain>(callee(), "throws"); },
       kHandler, Execution::kMayHaveRun},
      {"of this worker itself", [&] { worker(0).rpc_sync<&origins::print>(0, "throws"); }, kHandler,
       Execution::kMayHaveRun},
  });
}

TEST_P(ErrorOrigins, FromACallThatTheHandlerMade) {
  constexpr auto kNested = ErrorOrigin::kNestedCall;
  constexpr auto kMayHaveRun = Execution::kMayHaveRun;
  expect_all({
      {"thrown there",
       [&] { rpc_sync<&origins::print_there>(callee(), "throws"); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      {"later",
       [&] { rpc_async<&origins::print_there_later>(callee(), "throws").wait(); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      {"kept",
       [&] { remote<&origins::print_there>(callee(), "throws").to_here(); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      // That one did not run, but the one that made it may have.
      {"rejected there",
       [&] { rpc_sync<&origins::print_there>(callee(), "rejects"); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      {"rejected there, later",
       [&] { rpc_sync<&origins::print_there_later>(callee(), "rejects"); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      {"two calls away",
       [&] { rpc_sync<&origins::print_twice_there>(callee(), "throws"); },
       kNested,
       kMayHaveRun,
       {"origins::print_there", "origins::print"}},
      {"no such method",
       [&] { rpc_sync<&origins::miss_there>(callee()); },
       kNested,
       kMayHaveRun,
       {"origins::missing"},
       ErrorOrigin::kCallee},
      {"no answer",
       [&] { rpc_sync<&origins::wait_there>(callee()); },
       kNested,
       kMayHaveRun,
       {"origins::never"},
       ErrorOrigin::kNetwork},
      {"a reference",
       [&] { rpc_sync<&origins::make_there>(callee()); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
  });
  const RpcError twice =
      error_of([&] { rpc_sync<&origins::print_twice_there>(callee(), "throws"); });
  EXPECT_STREQ(
      twice.what(),
      "std::runtime_error: tray 2 is empty [UNKNOWN; peer 'worker1'; method "
      "'origins::print_twice_there'; from a nested call: 'origins::print_there' at 'worker0' "
      "-> 'origins::print' at 'worker1' (the handler); may have run]");
}

TEST_P(ErrorOrigins, FromAPeerThatIsGone) {
  ShutdownOptions now;
  now.graceful = false;
  const Future<int> pending = rpc_async<&origins::never>(callee());
  ASSERT_TRUE(origins::has_come(1));
  const Peer gone = callee();
  worker(1).shutdown(now);
  expect_all({{"under way", [&] { pending.wait(); }, ErrorOrigin::kNetwork, Execution::kMayHaveRun},
              {"afterwards", [&] { rpc_sync<&origins::print>(gone, "throws"); },
               ErrorOrigin::kNetwork, Execution::kDidNotRun}});
  worker(0).shutdown(now);
  expect_all({{"of a worker that has ended", [&] { rpc_sync<&origins::print>(gone, "throws"); },
               ErrorOrigin::kThisWorker, Execution::kDidNotRun}});
  answer_all();
  abandon();
  start(2, error_origins_table());
}

}  // namespace
}  // namespace sinew
