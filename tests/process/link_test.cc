// What lies between two workers, as a program outside sees it: what arrives, what still fits, and
// who lives, over real processes. The test is mostly a worker itself, named "test".

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/link_methods.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/tcp_proxy.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Worker;
using sinew::testing::Certificates;
using sinew::testing::ChildProcess;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::resident_bytes;
using sinew::testing::TcpProxy;
using testapp::Counter;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
// What a call may take that has nothing to wait for. Calls have minutes.
constexpr auto kAtOnce = 20s;

std::unique_ptr<ChildProcess> new_child() {
  return std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
}

std::int64_t number_of(const std::string& answer) {
  std::int64_t number = -1;
  EXPECT_TRUE(answer.rfind("ok ", 0) == 0 && absl::SimpleAtoi(answer.substr(3), &number)) << answer;
  return number;
}

// ---- A rank that comes back.

/// A fixed world of three processes that meet at rank 0, w0.
class RestartedRankZero : public ::testing::Test {
 protected:
  RestartedRankZero() {
    for (int rank = 0; rank < 3; ++rank) {
      workers_.push_back(new_child());
      begin(rank);
    }
    for (const auto& worker : workers_) EXPECT_THAT(worker->receive(), StartsWith("ok "));
  }

  void begin(int rank) {
    worker(rank).send(absl::StrCat("start name=w", rank, " init=", meet_, " world=3 rank=", rank,
                                   " beat_ms=200"));
  }
  ChildProcess& worker(int rank) { return *workers_[static_cast<std::size_t>(rank)]; }
  void restart_rank_zero() {
    worker(0).signal(SIGKILL);
    workers_[0] = new_child();
    begin(0);
    ASSERT_THAT(worker(0).receive(), StartsWith("ok "));
    // It may know the others before they have heard of it.
    for (const int rank : {1, 2}) EXPECT_EVENTUALLY(worker(rank).ask("add w0"), "ok 3");
  }
  void expect_counter(int rank, const std::string& counter, std::int64_t value) {
    EXPECT_EVENTUALLY(number_of(worker(rank).ask("counter " + counter)), value)
        << "w" << rank << ": " << counter;
  }
  void expect_graceful_end() {
    for (const auto& worker : workers_) worker->send("shutdown graceful 40000");
    for (const auto& worker : workers_) EXPECT_EQ(worker->receive(), "ok ");
    for (const auto& worker : workers_) EXPECT_EQ(worker->finish(), 0);
  }

  const std::string meet_ = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port());
  std::vector<std::unique_ptr<ChildProcess>> workers_;
};

TEST_F(RestartedRankZero, NoCallGetsTheAnswerToAnotherOne) {
  for (const int rank : {1, 2}) EXPECT_EQ(worker(rank).ask("flood w0"), "ok ");
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(eventually([&] { return number_of(worker(rank).ask("flooded")) > 100; }));
  }
  restart_rank_zero();
  for (const int rank : {1, 2}) {
    // What the old one answered is all in by now.
    const std::int64_t before = number_of(worker(rank).ask("flooded"));
    EXPECT_TRUE(eventually([&] { return number_of(worker(rank).ask("flooded")) > before + 100; }));
  }
  for (const int rank : {1, 2}) EXPECT_THAT(worker(rank).ask("calm"), StartsWith("ok wrong=0 "));
}

TEST_F(RestartedRankZero, IsAMemberLikeAnyOther) {
  restart_rank_zero();
  for (const int rank : {1, 2}) {
    SCOPED_TRACE(rank);
    const std::string name = absl::StrCat("w", rank);
    EXPECT_EQ(worker(0).ask("add " + name), "ok 3");
    EXPECT_EQ(worker(rank).ask("add w0"), "ok 3");
    EXPECT_EQ(worker(0).ask(absl::StrCat("hold ", name, " at_", name)), "ok ");
    EXPECT_EQ(worker(0).ask(absl::StrCat("use at_", name)), "ok 2");
    EXPECT_EQ(worker(rank).ask("hold w0 at_w0"), "ok ");
    EXPECT_EQ(worker(rank).ask("use at_w0"), "ok 2");
  }
}

TEST_F(RestartedRankZero, ReferencesToItAndCallsItServesAreGivenUp) {
  restart_rank_zero();
  for (const int rank : {1, 2}) EXPECT_EQ(worker(rank).ask("hold w0 it"), "ok ");
  EXPECT_EQ(worker(0).ask("hold w1 it"), "ok ");
  for (const auto& worker : workers_) EXPECT_EQ(worker->ask("drop it"), "ok ");
  for (const int rank : {0, 1, 2}) {
    expect_counter(rank, "rref.forks", 0);
    expect_counter(rank, "rref.owned", 0);
    expect_counter(rank, "rref.pending_users", 0);
    expect_counter(rank, "rpc.server_active_calls", 0);
    expect_counter(rank, "rpc.client_active_calls", 0);
  }
}

TEST_F(RestartedRankZero, TheJobEndsTogether) {
  for (const int rank : {1, 2}) {
    EXPECT_EQ(worker(rank).ask("flood w0"), "ok ");
    EXPECT_TRUE(eventually([&] { return number_of(worker(rank).ask("flooded")) > 10; }));
  }
  restart_rank_zero();
  for (const int rank : {1, 2}) worker(rank).ask("calm");
  expect_graceful_end();
}

// ---- A pair.

/// The test founds an open job over a file, and starts other processes.
class Pair : public ::testing::Test {
 protected:
  void TearDown() override {
    testapp::gate().open();
    if (!self_.valid()) return;
    testapp::release_at(self_);
    self_.shutdown({false, 60s, false});
    testapp::state_of(self_).kept.clear();
  }

  void start(const std::function<void(sinew::WorkerOptions&)>& tweak = nullptr) {
    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = testapp::methods();
    testapp::add_link_methods(options.methods);
    options.init_method = "file://" + folder_.file("meet");
    options.num_threads = 4;
    options.default_timeout = 5min;
    // The machine may be busy.
    options.lease = 2min;
    if (tweak) tweak(options);
    self_ = sinew::init_rpc(options);
    testapp::gate().close();
  }
  std::unique_ptr<ChildProcess> spawn(const std::string& more = "") {
    auto child = new_child();
    const std::string answer = child->ask(absl::StrCat(
        "start name=child init=file://", folder_.file("meet"), " call_ms=300000 ", more));
    EXPECT_THAT(answer, StartsWith("ok "));
    EXPECT_TRUE(eventually([this] { return self_.workers().size() == 2; }));
    return child;
  }

  const sinew::testing::TemporaryFolder folder_;
  Worker self_;
};

class PairOverWays : public Pair, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(With, PairOverWays, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& way) {
                           return way.param ? "SameHost" : "Tcp";
                         });

TEST_P(PairOverWays, ResultsThatNobodyHasReadHoldUpNoOtherCall) {
  start([](sinew::WorkerOptions& options) { options.same_host = GetParam(); });
  const auto child = spawn(absl::StrCat("lease_ms=120000 same_host=", GetParam() ? 1 : 0));
  constexpr int kResults = 24;
  constexpr std::int64_t kSize = 16 * std::int64_t{kMiB};
  std::vector<sinew::Future<at::Tensor>> results;
  for (int i = 0; i < kResults; ++i) {
    results.push_back(self_.peer("child").async<&testapp::filled>(kSize, i));
  }
  EXPECT_EQ(self_.peer("child").async<&testapp::add>(1, 2).wait_for(kAtOnce), 3);
  // They all come though none is read.
  EXPECT_TRUE(eventually([&] {
    for (const auto& result : results) {
      if (!result.done()) return false;
    }
    return true;
  }));
  for (int i = 0; i < kResults; ++i) {
    EXPECT_TRUE(
        testapp::is_filled(results[static_cast<std::size_t>(i)].wait_for(kAtOnce), kSize, i));
  }
}

TEST_F(Pair, ALongCallDoesNotKeepTheRepliesOfOthersAtItsCallee) {
  start();
  const auto child = spawn("lease_ms=120000");
  const auto fetch = [this](int count) {
    constexpr int kAtATime = 20;
    constexpr std::int64_t kSize = 256 << 10;
    for (int done = 0; done < count; done += kAtATime) {
      std::vector<sinew::Future<at::Tensor>> results;
      for (int i = 0; i < kAtATime; ++i) {
        results.push_back(self_.peer("child").async<&testapp::filled>(kSize, done + i));
      }
      for (int i = 0; i < kAtATime; ++i) {
        EXPECT_TRUE(
            testapp::is_filled(results[static_cast<std::size_t>(i)].wait(), kSize, done + i));
      }
    }
  };
  const auto long_call = self_.peer("child").async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return child->ask("stalled") == "ok 1"; }));
  fetch(100);
  const std::size_t before = resident_bytes(child->pid());
  fetch(1000);
  const std::size_t after = resident_bytes(child->pid());
  EXPECT_LT(after, before + 96 * kMiB) << "1000 replies of 256 KiB were fetched and read";
  child->ask("release");
  EXPECT_EQ(long_call.wait_for(kAtOnce), 1);
}

TEST_F(Pair, CallsThatAreAnsweredLaterCountAgainstTheWindow) {
  constexpr std::size_t kWindow = 32 * kMiB;
  constexpr std::size_t kArgument = 32 << 10;
  start([](sinew::WorkerOptions& options) { options.send_window_bytes = kWindow; });
  const auto child = spawn(absl::StrCat("lease_ms=120000 receive_window=", kWindow));
  EXPECT_EQ(self_.peer("child").call<&testapp::add>(1, 2), 3);
  const std::size_t before = resident_bytes(child->pid());
  std::vector<sinew::Future<int>> calls;
  constexpr std::size_t kCalls = 8000;
  const std::string argument(kArgument, 'x');
  for (std::size_t i = 0; i < kCalls; ++i) {
    calls.push_back(self_.peer("child").async<&testapp::hold>(argument));
  }
  // Until no more of them start.
  std::int64_t started = 0;
  int times_seen = 0;
  EXPECT_TRUE(eventually([&] {
    const std::int64_t now = number_of(child->ask("stalled"));
    times_seen = std::exchange(started, now) == now && now > 0 ? times_seen + 1 : 0;
    return times_seen > 200;
  }));
  EXPECT_LT(resident_bytes(child->pid()), before + kWindow + 64 * kMiB)
      << started << " calls of 32 KiB have been started and not answered";
  EXPECT_LE(started, static_cast<std::int64_t>(kWindow / kArgument + 64));
  // Who found no room heard so at once, and what was taken in runs in time.
  int refused = 0;
  ASSERT_TRUE(eventually([&] {
    child->ask("release");
    for (const auto& call : calls) {
      if (!call.done()) return false;
    }
    return true;
  }));
  for (const auto& call : calls) {
    if (call.error() == nullptr) {
      EXPECT_EQ(call.wait(), 1);
      continue;
    }
    const RpcError error = error_of([&] { call.wait(); });
    ASSERT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
    ASSERT_EQ(error.execution(), sinew::Execution::kDidNotRun) << error.what();
    ++refused;
  }
  EXPECT_GT(refused, 0) << "250 MiB were taken in for two windows of 32 MiB";
}

TEST_F(Pair, WhoReadsNoRepliesCostsAWindowOfThem) {
  start([](sinew::WorkerOptions& options) { options.send_window_bytes = 8 * kMiB; });
  const auto child = spawn("lease_ms=120000");
  constexpr int kResults = 200;
  EXPECT_EQ(child->ask(absl::StrCat("prefetch test ", kResults, " ", kMiB)), "ok ");
  // All that has come here waits behind the gate.
  ASSERT_TRUE(testapp::gate().wait_for_arrivals(4));
  ASSERT_TRUE(eventually([this] { return self_.counters()["rpc.server_active_calls"] >= 100; }));
  child->signal(SIGSTOP);
  testapp::gate().open();
  // Behind those that wait for a thread.
  EXPECT_EQ(self_.peer("test").call<&testapp::add>(1, 2), 3);
  testapp::State& state = testapp::state_of(self_);
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    EXPECT_LE(state.executions.size(), 48u)
        << "of 1 MiB each, for a peer that takes 8 and has stopped";
  }
  child->signal(SIGCONT);
  EXPECT_EQ(child->ask("collect"), absl::StrCat("ok ", kResults));
}

// ---- Who lives.

TEST_F(Pair, LeasesThatDifferAreNoLoss) {
  start([](sinew::WorkerOptions& options) {
    options.lease = 3s;
    options.heartbeat_interval = 500ms;
  });
  // It finds one beat in five seconds enough.
  const auto child = spawn("lease_ms=15000 beat_ms=5000");
  const auto call = self_.peer("child").async<&testapp::stall>();
  const auto theirs = self_.peer("child").remote<Counter>(1);
  theirs.created().wait();
  EXPECT_EQ(child->ask("hold test mine"), "ok ");
  // Two of the shorter leases and a beat of the slower one.
  EXPECT_EQ(error_of([&] { call.wait_for(7s); }).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(self_.peer("child").alive());
  EXPECT_EQ(theirs.call<&Counter::get>(), 1);
  EXPECT_EQ(child->ask("use mine"), "ok 2");
  EXPECT_EQ(child->ask("release"), "ok ");
  EXPECT_EQ(call.wait_for(kAtOnce), 1);
}

TEST_F(Pair, OfLeasesThatDifferTheShorterOneEndsCallsAndTheLongerOneKeepsReferences) {
  start([](sinew::WorkerOptions& options) { options.lease = 60s; });
  const auto child = spawn("lease_ms=3000 beat_ms=500");
  EXPECT_EQ(child->ask("hold test mine"), "ok ");
  EXPECT_EQ(self_.counters()["rref.owned"], 1);
  const auto call = self_.peer("child").async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return child->ask("stalled") == "ok 1"; }));
  child->signal(SIGSTOP);
  // It has fenced itself when it goes on, so there is nothing to wait for.
  const RpcError error = error_of([&] { call.wait_for(30s); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  EXPECT_THAT(error.message(), HasSubstr("it has not answered for 3 s"));
  // The list is told after the calls; what follows from that is posted.
  ASSERT_TRUE(eventually([this] {
    try {
      self_.peer("child");
      return false;
    } catch (const RpcError& off_the_list) {
      return off_the_list.code() == ErrorCode::kNotFound;
    }
  }));
  // But its clock may run slower, and its own lease was not the longer one.
  for (int look = 0; look < 50; ++look) {
    ASSERT_EQ(self_.counters()["rref.owned"], 1);
    std::this_thread::sleep_for(10ms);
  }
}

TEST_F(Pair, OfAWorldShutsDownWithoutWaitingForWhatIsKeptForASilentOne) {
  const auto child = new_child();
  child->send(absl::StrCat("start name=child init=file://", folder_.file("meet"),
                           " world=2 rank=1 lease_ms=3000 beat_ms=500"));
  start([](sinew::WorkerOptions& options) {
    options.world_size = 2;
    options.rank = 0;
    options.lease = 3s;
    options.heartbeat_interval = 500ms;
  });
  ASSERT_THAT(child->receive(), StartsWith("ok "));
  EXPECT_EQ(child->ask("hold test mine"), "ok ");
  EXPECT_EQ(self_.counters()["rref.forks"], 1);
  child->signal(SIGSTOP);
  ASSERT_TRUE(eventually([this] { return self_.workers().size() == 1; }));
  // It is kept for a quarter of the lease from here, unless this host is slow.
  EXPECT_NO_THROW(self_.shutdown({/*graceful=*/true, 60s, /*fail_on_leaks=*/true}));
}

/// Both are reached through proxies only.
class Firewalled : public Pair {
 protected:
  void start_both(const std::function<void(sinew::WorkerOptions&)>& tweak = nullptr,
                  const std::string& more = "") {
    start([&](sinew::WorkerOptions& options) {
      options.same_host = false;
      options.bind_address = absl::StrCat("127.0.0.1:", own_port_);
      options.advertise_address = TcpProxy::kHost;
      if (tweak) tweak(options);
    });
    child_ = spawn(absl::StrCat("same_host=0 lease_ms=120000 bind=127.0.0.1:", child_port_,
                                " advertise=", TcpProxy::kHost, " ", more));
    EXPECT_EQ(self_.peer("child").call<&testapp::add>(1, 2), 3);
    EXPECT_EQ(child_->ask("add test"), "ok 3");
    EXPECT_EQ(child_->ask("hold test mine"), "ok ");
    call_ = self_.peer("child").async<&testapp::stall>();
    EXPECT_TRUE(eventually([this] { return child_->ask("stalled") == "ok 1"; }));
  }
  void start_both_with_tls() {
    const sinew::TlsFiles files = issue("child");
    start_both(
        [this](sinew::WorkerOptions& options) {
          options.credentials = sinew::Credentials::mutual_tls(issue("test"));
        },
        absl::StrCat("tls=mutual ca=", files.ca, " cert=", files.certificate, " key=", files.key));
  }
  sinew::TlsFiles issue(const std::string& name,
                        const sinew::testing::Validity& validity = {}) const {
    return certificates_.issue(name, names_of(name), "ca", validity);
  }
  static std::string names_of(const std::string& name) {
    return absl::StrCat("DNS:", name, ",IP:127.0.0.1,IP:", TcpProxy::kHost);
  }
  /// As before, both ways: calls, the one that was under way, and references.
  void expect_nothing_lost() {
    const auto sum = self_.peer("child").async<&testapp::add>(2, 2);
    EXPECT_EQ(error_code_within(sum), ErrorCode::kOk);
    EXPECT_EQ(child_->ask("add test"), "ok 3");
    EXPECT_EQ(child_->ask("use mine"), "ok 2");
    EXPECT_TRUE(self_.peer("child").alive());
    EXPECT_EQ(child_->ask("release"), "ok ");
    EXPECT_EQ(error_code_within(call_), ErrorCode::kOk);
  }
  static ErrorCode error_code_within(const sinew::Future<int>& call) {
    try {
      call.wait_for(kAtOnce);
      return ErrorCode::kOk;
    } catch (const RpcError& error) {
      ADD_FAILURE() << error.what();
      return error.code();
    }
  }
  /// Lets so much time pass, and fails when the call ends meanwhile.
  void let_pass(std::chrono::milliseconds time) const {
    EXPECT_EQ(error_of([&] { call_.wait_for(time); }).code(), ErrorCode::kDeadlineExceeded);
  }

  const Certificates certificates_;
  const int own_port_ = sinew::testing::free_port();
  const int child_port_ = sinew::testing::free_port();
  TcpProxy to_self_{own_port_};
  TcpProxy to_child_{child_port_};
  std::unique_ptr<ChildProcess> child_;
  sinew::Future<int> call_;
};

TEST_F(Firewalled, AnAddressThatRefusesForAMomentIsNoLoss) {
  start_both();
  to_self_.refuse();
  to_child_.refuse();
  let_pass(500ms);
  to_self_.pass();
  to_child_.pass();
  expect_nothing_lost();
}

TEST_F(Firewalled, AConnectionThatIsResetInItsTlsHandshakeIsNoLoss) {
  start_both_with_tls();
  to_self_.reset_next(2);
  to_child_.reset_next(2);
  // Some attempt of either has met it. Who opens the next connection is theirs to decide.
  EXPECT_TRUE(eventually([this] { return to_self_.resets() + to_child_.resets() > 0; }));
  expect_nothing_lost();
}

TEST_F(Firewalled, ACertificateThatIsRenewedLateIsNoLoss) {
  start_both_with_tls();
  // The same files: workers read them for each connection.
  for (const char* name : {"test", "child"}) {
    issue(name, sinew::testing::Validity::expired());
  }
  to_self_.reset_next(0);
  to_child_.reset_next(0);
  let_pass(500ms);
  for (const char* name : {"test", "child"}) issue(name);
  expect_nothing_lost();
}

TEST_F(Firewalled, ACertificateThatIsRenewedBeforeItsKeyIsNoLoss) {
  start_both_with_tls();
  for (const char* name : {"test", "child"}) {
    const std::string renewed = absl::StrCat("renewed-", name);
    certificates_.issue(renewed, names_of(name));
    certificates_.bundle(absl::StrCat(name, ".pem"), {certificates_.path(renewed + ".pem")});
  }
  to_self_.reset_next(0);
  to_child_.reset_next(0);
  let_pass(500ms);
  for (const char* name : {"test", "child"}) {
    certificates_.bundle(absl::StrCat(name, ".key"),
                         {certificates_.path(absl::StrCat("renewed-", name, ".key"))});
  }
  expect_nothing_lost();
}

}  // namespace
