// What still fits between two workers, and what time is left, in one process.

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/tests/process/link_methods.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::internal::FaultAction;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::internal::Lane;
using sinew::testing::error_of;
using sinew::testing::eventually;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kOneMiB = std::size_t{1} << 20;
// What a call may take that has nothing to wait for. Calls have minutes.
constexpr auto kSoon = 30s;

class Room : public sinew::testing::ClusterTest {
 protected:
  void TearDown() override {
    testapp::gate().open();
    // What has failed already would only wait for what hangs.
    HasFailure() ? abandon() : finish();
  }

  void start_pair(const std::function<void(sinew::WorkerOptions&)>& tweak = nullptr) {
    sinew::testing::ClusterOptions options;
    options.methods = testapp::methods();
    testapp::add_link_methods(options.methods);
    options.tweak = [this, &tweak](int rank, sinew::WorkerOptions& worker) {
      worker.default_timeout = 5min;
      // All have the same one, and start at the same time.
      if (rank == 0 && worker.network != nullptr) network_ = worker.network;
      if (tweak) tweak(worker);
    };
    sinew::testing::wrap_transports(
        options, [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          return rank == 0 ? sinew::internal::make_faulty_transport(std::move(inner), plan_)
                           : std::move(inner);
        });
    start(std::move(options));
    testapp::gate().close();
    EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
    EXPECT_EQ(worker(1).peer(0).call<&testapp::add>(1, 2), 3);
  }
  std::size_t stalled_at(int rank) const {
    testapp::State& state = testapp::state_of(worker(rank));
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.stalled.size();
  }
  std::size_t executions_at(int rank) const {
    testapp::State& state = testapp::state_of(worker(rank));
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.executions.size();
  }

  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(/*seed=*/1);
  std::shared_ptr<sinew::internal::InprocNetwork> network_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(Room);

TEST_P(Room, ResultsThatNobodyHasReadHoldUpNoOtherCall) {
  start_pair([](sinew::WorkerOptions& options) { options.receive_window_bytes = 8 * kOneMiB; });
  constexpr int kResults = 24;
  std::vector<sinew::Future<at::Tensor>> results;
  for (int i = 0; i < kResults; ++i) {
    results.push_back(worker(0).peer(1).async<&testapp::filled>(std::int64_t{kOneMiB}, i));
  }
  EXPECT_EQ(worker(0).peer(1).async<&testapp::add>(1, 2).wait_for(kSoon), 3);
  for (int i = 0; i < kResults; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    EXPECT_TRUE(testapp::is_filled(result.wait_for(kSoon), kOneMiB, i));
  }
}

TEST_P(Room, CallsThatAreAnsweredLaterCountAgainstTheWindow) {
  constexpr std::size_t kWindow = 8 * kOneMiB;
  constexpr std::size_t kArgument = 32 << 10;
  start_pair([](sinew::WorkerOptions& options) {
    options.receive_window_bytes = kWindow;
    options.send_window_bytes = kWindow;
  });
  std::vector<sinew::Future<int>> calls;
  const std::string argument(kArgument, 'x');
  // Twice what both windows hold together.
  for (int i = 0; i < 1024; ++i) calls.push_back(worker(0).peer(1).async<&testapp::hold>(argument));
  std::size_t started = 0;
  int times_seen = 0;
  EXPECT_TRUE(eventually([&] {
    const std::size_t now = stalled_at(1);
    times_seen = std::exchange(started, now) == now && now > 0 ? times_seen + 1 : 0;
    return times_seen > 200;
  }));
  EXPECT_LE(started, kWindow / kArgument + 32);
  ASSERT_TRUE(eventually([&] {
    testapp::release_at(worker(1));
    for (const auto& call : calls) {
      if (!call.done()) return false;
    }
    return true;
  }));
  int refused = 0;
  for (const auto& call : calls) {
    if (call.error() == nullptr) continue;
    const RpcError error = error_of([&] { call.wait(); });
    ASSERT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
    ASSERT_EQ(error.execution(), sinew::Execution::kDidNotRun) << error.what();
    ++refused;
  }
  EXPECT_GT(refused, 0);
}

TEST_P(Room, WhoReadsNoRepliesCostsAWindowOfThem) {
  start_pair([](sinew::WorkerOptions& options) { options.send_window_bytes = 8 * kOneMiB; });
  if (network_ == nullptr) {
    GTEST_SKIP() << "over gRPC a process is stopped: Pair.WhoReadsNoRepliesCostsAWindowOfThem";
  }
  constexpr int kResults = 100;
  std::vector<sinew::Future<at::Tensor>> results;
  for (int i = 0; i < kResults; ++i) {
    results.push_back(worker(0).peer(1).async<&testapp::gated>(std::int64_t{kOneMiB}, i));
  }
  ASSERT_TRUE(testapp::gate().wait_for_arrivals(4));
  ASSERT_TRUE(eventually([this] { return worker(1).counters()["rpc.server_active_calls"] >= 64; }));
  network_->freeze(worker(0).address());
  testapp::gate().open();
  // Behind those that wait for a thread.
  EXPECT_EQ(worker(1).peer(1).call<&testapp::add>(1, 2), 3);
  EXPECT_LE(executions_at(1), 32u) << "of 1 MiB each, for a peer that takes 8 and has stopped";
  network_->thaw(worker(0).address());
  for (int i = 0; i < kResults; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    EXPECT_TRUE(testapp::is_filled(result.wait_for(kSoon), kOneMiB, i));
  }
}

TEST_P(Room, ACallThatIsSentAgainHasTheTimeThatIsLeft) {
  start_pair();
  FaultRule hold;
  hold.action = FaultAction::kHold;
  hold.matches = [](const FaultyFrame& frame) {
    return frame.direction == FaultDirection::kOutgoing && frame.lane == Lane::kCalls;
  };
  const auto held = plan_->add(hold);
  const auto left = worker(0).peer(1).with({60s, {}}).async<&testapp::milliseconds_left>();
  ASSERT_TRUE(plan_->wait_for_hits(held, 1, 30s));
  EXPECT_EQ(error_of([&] { left.wait_for(2s); }).code(), ErrorCode::kDeadlineExceeded);
  plan_->remove(held);
  EXPECT_GT(plan_->break_connections([](const std::string&) { return true; }), 0u);
  EXPECT_LE(left.wait_for(kSoon), 58500);
}

}  // namespace
