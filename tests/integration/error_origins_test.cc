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

int origins::print_there(const std::string& how) { return caller().call<&origins::print>(how); }
sinew::Future<int> origins::print_there_later(const std::string& how) {
  return caller().async<&origins::print>(how).then([](int pages) { return pages + 1; });
}
int origins::print_twice_there(const std::string& how) {
  return caller().call<&origins::print_there>(how);
}
int origins::explain(const std::string& how) {
  try {
    return caller().call<&origins::print>(how);
  } catch (const sinew::RpcError& error) {
    throw sinew::RpcError(sinew::ErrorCode::kAborted, "of no use: " + error.message());
  }
}
int origins::miss_there() { return caller().call<&origins::missing>(); }
int origins::wait_there() {
  sinew::CallOptions soon;
  soon.timeout = std::chrono::seconds(1);
  return caller().with(soon).call<&origins::never>();
}
int origins::make_there() {
  caller().remote<&origins::print>("throws").created().wait();
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
  void print(const std::string& how) const { callee().call<&origins::print>(how); }
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
         with([](CallOptions& options) {
           options.timeout = std::chrono::seconds(0);
         }).call<&origins::missing>();
       },
       ErrorOrigin::kThisWorker, Execution::kDidNotRun},
      {"cancelled before it was sent",
       [&] {
         with([&](CallOptions& options) {
           options.cancellation = cancelled.token();
         }).call<&origins::never>();
       },
       ErrorOrigin::kThisWorker, Execution::kDidNotRun},
      {"nobody answers",
       [&] {
         with([](CallOptions& options) {
           options.timeout = std::chrono::seconds(1);
         }).call<&origins::never>();
       },
       ErrorOrigin::kNetwork, Execution::kMayHaveRun},
      {"a result that is none of ours", [&] { callee().call<&origins::count_few>(); },
       ErrorOrigin::kThisWorker, Execution::kMayHaveRun},
  });
}

TEST_P(ErrorOrigins, FromTheCallee) {
  expect_all({
      {"no such method", [&] { callee().call<&origins::missing>(); }, ErrorOrigin::kCallee,
       Execution::kDidNotRun},
      {"no such method, kept", [&] { callee().remote<&origins::missing>().created().wait(); },
       ErrorOrigin::kCallee, Execution::kDidNotRun},
      {"another signature", [&] { callee().call<&origins::shape_text>("x"); }, ErrorOrigin::kCallee,
       Execution::kDidNotRun},
      {"not allowed", [&] { callee().call<&origins::reserved>(); }, ErrorOrigin::kCallee,
       Execution::kDidNotRun},
      {"an argument that is none", [&] { callee().call<&origins::take_number>(300); },
       ErrorOrigin::kCallee, Execution::kDidNotRun},
  });
  EXPECT_EQ(origins::ran, 0);
  std::vector<Future<int>> pending;
  for (int i = 0; i < 3; ++i) pending.push_back(callee().async<&origins::never>());
  ASSERT_TRUE(origins::has_come(3));
  expect_all({{"no room", [&] { callee().call<&origins::never>(); }, ErrorOrigin::kCallee,
               Execution::kDidNotRun}});
  answer_all();
  for (const Future<int>& each : pending) EXPECT_EQ(each.wait(), 1);
}

TEST_P(ErrorOrigins, FromTheHandler) {
  constexpr auto kHandler = ErrorOrigin::kHandler;
  expect_all({
      {"thrown", [&] { print("throws"); }, kHandler, Execution::kMayHaveRun},
      {"a number", [&] { print("throws a number"); }, kHandler, Execution::kMayHaveRun},
      {"an RpcError", [&] { callee().call<&origins::print>("throws an RpcError"); }, kHandler,
       Execution::kMayHaveRun},
      {"a future", [&] { callee().call<&origins::print_later>("throws a number"); }, kHandler,
       Execution::kMayHaveRun},
      {"before a future", [&] { callee().async<&origins::print_later>("throws").wait(); }, kHandler,
       Execution::kMayHaveRun},
      {"rejected", [&] { print("rejects"); }, kHandler, Execution::kDidNotRun},
      {"rejected later", [&] { callee().call<&origins::reject_later>(); }, kHandler,
       Execution::kDidNotRun},
      {"rejected, with a continuation",
       [&] { callee().async<&origins::reject_later>().then([](int) {}).wait(); }, kHandler,
       Execution::kDidNotRun},
      {"rejected, kept", [&] { callee().remote<&origins::print>("rejects").created().wait(); },
       kHandler, Execution::kDidNotRun},
      {"a constructor", [&] { callee().remote<origins::Printer>(0).created().wait(); }, kHandler,
       Execution::kMayHaveRun},
      {"its object",
       [&] { (callee().remote<origins::Printer>(0)).call<&origins::Printer::pages>(); }, kHandler,
       Execution::kMayHaveRun},
      {"a fetch", [&] { callee().remote<&origins::print>("throws").to_here(); }, kHandler,
       Execution::kMayHaveRun},
      {"what it made of another error", [&] { callee().call<&origins::explain>("throws"); },
       kHandler, Execution::kMayHaveRun},
      {"of this worker itself", [&] { worker(0).peer(0).call<&origins::print>("throws"); },
       kHandler, Execution::kMayHaveRun},
  });
}

TEST_P(ErrorOrigins, FromACallThatTheHandlerMade) {
  constexpr auto kNested = ErrorOrigin::kNestedCall;
  constexpr auto kMayHaveRun = Execution::kMayHaveRun;
  expect_all({
      {"thrown there",
       [&] { callee().call<&origins::print_there>("throws"); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      {"later",
       [&] { callee().async<&origins::print_there_later>("throws").wait(); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      {"kept",
       [&] { callee().remote<&origins::print_there>("throws").to_here(); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      // That one did not run, but the one that made it may have.
      {"rejected there",
       [&] { callee().call<&origins::print_there>("rejects"); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      {"rejected there, later",
       [&] { callee().call<&origins::print_there_later>("rejects"); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
      {"two calls away",
       [&] { callee().call<&origins::print_twice_there>("throws"); },
       kNested,
       kMayHaveRun,
       {"origins::print_there", "origins::print"}},
      {"no such method",
       [&] { callee().call<&origins::miss_there>(); },
       kNested,
       kMayHaveRun,
       {"origins::missing"},
       ErrorOrigin::kCallee},
      {"no answer",
       [&] { callee().call<&origins::wait_there>(); },
       kNested,
       kMayHaveRun,
       {"origins::never"},
       ErrorOrigin::kNetwork},
      {"a reference",
       [&] { callee().call<&origins::make_there>(); },
       kNested,
       kMayHaveRun,
       {"origins::print"}},
  });
  const RpcError twice = error_of([&] { callee().call<&origins::print_twice_there>("throws"); });
  EXPECT_STREQ(
      twice.what(),
      "std::runtime_error: tray 2 is empty [UNKNOWN; peer 'worker1'; method "
      "'origins::print_twice_there'; from a nested call: 'origins::print_there' at 'worker0' "
      "-> 'origins::print' at 'worker1' (the handler); may have run]");
}

TEST_P(ErrorOrigins, FromAPeerThatIsGone) {
  ShutdownOptions now;
  now.graceful = false;
  const Future<int> pending = callee().async<&origins::never>();
  ASSERT_TRUE(origins::has_come(1));
  const Peer gone = callee();
  worker(1).shutdown(now);
  expect_all({{"under way", [&] { pending.wait(); }, ErrorOrigin::kNetwork, Execution::kMayHaveRun},
              {"afterwards", [&] { gone.call<&origins::print>("throws"); }, ErrorOrigin::kNetwork,
               Execution::kDidNotRun}});
  worker(0).shutdown(now);
  expect_all({{"of a worker that has ended", [&] { gone.call<&origins::print>("throws"); },
               ErrorOrigin::kThisWorker, Execution::kDidNotRun}});
  answer_all();
  abandon();
  start(2, error_origins_table());
}

}  // namespace
}  // namespace sinew
