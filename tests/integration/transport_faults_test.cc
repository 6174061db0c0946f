// A broken connection is not a dead worker: calls that are under way when it breaks end once, with
// their results, and run once.

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/transport/inproc/inproc_transport.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/support/raw_peer.h"

namespace integration {

std::string text_of(std::size_t size) { return std::string(size, 'x'); }

}  // namespace integration

SINEW_METHOD(integration::text_of);

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::internal::FaultAction;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::internal::FrameKind;
using sinew::internal::Lane;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testapp::Counter;
using namespace std::chrono_literals;

namespace {

class TransportFaults : public sinew::testing::ClusterTest {
 protected:
  void start_with_faults(int size,
                         std::function<void(int, sinew::WorkerOptions&)> tweak = nullptr) {
    plan_ = std::make_shared<FaultPlan>(7);
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(size);
    options.methods = testapp::methods();
    options.methods.add<&integration::text_of>();
    options.tweak = [this, tweak](int rank, sinew::WorkerOptions& worker) {
      // All have the same one, and start at the same time.
      if (rank == 0 && worker.network != nullptr) network_ = worker.network;
      if (tweak) tweak(rank, worker);
    };
    // Faults of one worker only; connections have two ends.
    sinew::testing::wrap_transports(
        options, [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          return rank == faulty_ ? sinew::internal::make_faulty_transport(std::move(inner), plan_)
                                 : std::move(inner);
        });
    start(std::move(options));
  }

  std::size_t break_all() {
    return plan_->break_connections([](const std::string&) { return true; });
  }

  /// Makes `count` calls while connections break; each must end with its result and have run once.
  void call_while_breaking(int count, const std::function<void()>& on_each_batch) {
    // From here on there is a connection to break.
    EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
    std::vector<sinew::Future<int>> calls;
    for (int i = 0; i < count; ++i) {
      calls.push_back(worker(0).peer(1).async<&testapp::count>(i));
      if (i % 50 == 49) on_each_batch();
    }
    int failed = 0;
    for (const sinew::Future<int>& call : calls) {
      try {
        if (call.wait() != 1) ++failed;
      } catch (const RpcError& error) {
        ++failed;
        ADD_FAILURE() << error.what();
      }
    }
    EXPECT_EQ(failed, 0);
    const std::map<int, int> runs = worker(0).peer(1).call<&testapp::executions>();
    EXPECT_EQ(runs.size(), static_cast<std::size_t>(count));
    for (const auto& [number, times] : runs) EXPECT_EQ(times, 1) << "call " << number;
  }

  int faulty_ = 0;
  std::shared_ptr<FaultPlan> plan_;
  std::shared_ptr<sinew::internal::InprocNetwork> network_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(TransportFaults);

TEST_P(TransportFaults, EveryCallRunsOnceThoughConnectionsBreak) {
  start_with_faults(2);
  std::size_t broken = 0;
  call_while_breaking(2000, [&] { broken += break_all(); });
  EXPECT_GT(broken, 0u);
}

TEST_P(TransportFaults, FromTheOtherEndToo) {
  start_with_faults(2);
  if (network_ == nullptr)
    GTEST_SKIP() << "the network that breaks both ends at once is that of inproc";
  std::size_t broken = 0;
  call_while_breaking(2000, [&] {
    broken += network_->break_connections(worker(0).address(), worker(1).address());
  });
  EXPECT_GT(broken, 0u);
}

TEST_P(TransportFaults, ABreakAtAnyCallOrReplyFrame) {
  start_with_faults(2);
  FaultRule rule;
  rule.action = FaultAction::kBreak;
  rule.matches = [](const FaultyFrame& frame) { return frame.lane == Lane::kCalls; };
  rule.probability = 0.05;
  rule.limit = 40;
  const auto id = plan_->add(rule);
  call_while_breaking(1000, [] {});
  EXPECT_GT(plan_->hits(id), 0u);
}

// Its number is that of another lane.
TEST_P(TransportFaults, AControlCallThatIsGivenUpTakesNoOtherCallWithIt) {
  start_with_faults(2);
  FaultRule hold;
  hold.action = FaultAction::kHold;
  hold.matches = [](const FaultyFrame& frame) {
    return frame.direction == FaultDirection::kIncoming &&
           absl::StrContains(frame.frame.envelope, "sinew.test.nothing");
  };
  const auto held = plan_->add(hold);
  for (int i = 0; i < 3; ++i) {
    const auto call = sinew::WorkerAccess::core(worker(1))->control_call(
        worker(0).info(), "sinew.test.nothing", "", 50ms);
    EXPECT_EQ(error_of([&] { call.wait(); }).code(), ErrorCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(plan_->wait_for_hits(held, 3, 30s));
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(worker(1).peer(0).async<&testapp::add>(i, 1).wait_for(60s), i + 1);
  }
  plan_->release(held);
  plan_->remove(held);
  EXPECT_EQ(worker(1).peer(0).call<&testapp::add>(1, 2), 3);
}

TEST_P(TransportFaults, LargeArgumentsSurviveABreak) {
  start_with_faults(2);
  const std::string large(3 << 20, 'x');
  for (int round = 0; round < 5; ++round) {
    std::vector<sinew::Future<std::string>> calls;
    for (int i = 0; i < 4; ++i) calls.push_back(worker(0).peer(1).async<&testapp::echo>(large));
    break_all();
    for (const auto& call : calls) EXPECT_EQ(call.wait().size(), large.size());
  }
}

TEST_P(TransportFaults, AnEnvelopeThatIsTooLargeIsNotSent) {
  start_with_faults(2);
  constexpr std::size_t kTooMuch = sinew::internal::kMaxEnvelopeBytes;
  const RpcError argument =
      error_of([&] { worker(0).peer(1).call<&testapp::echo>(std::string(kTooMuch, 'x')); });
  EXPECT_EQ(argument.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(argument.execution(), sinew::Execution::kDidNotRun);
  EXPECT_THAT(argument.message(), ::testing::HasSubstr("pass bulk data as tensors"));
  const RpcError result =
      error_of([&] { worker(0).peer(1).call<&integration::text_of>(kTooMuch); });
  EXPECT_EQ(result.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(result.execution(), sinew::Execution::kMayHaveRun);
  EXPECT_THAT(result.message(),
              ::testing::HasSubstr("the result of method 'integration::text_of'"));
  EXPECT_EQ(worker(0).peer(1).call<&testapp::echo>("small"), "small");
}

// Whoever sends one all the same, and is no member, learns that there is no room for it, and the
// connection stays.
TEST_P(TransportFaults, AnEnvelopeThatIsTooLargeIsRefusedToItsSender) {
  start_with_faults(2);
  if (network_ == nullptr) GTEST_SKIP() << "a stranger's transport is made for inproc only";
  sinew::testing::RawPeer stranger({"stranger", -1, {}},
                                   sinew::internal::make_inproc_transport(network_));
  ASSERT_TRUE(stranger.connect(worker(1).address()).ok());
  sinew::internal::LinkHeader header;
  header.kind = FrameKind::kRequest;
  header.number = 1;
  header.subject = 1;
  stranger.send_bytes(sinew::internal::lane_of(header.kind), sinew::internal::write_header(header),
                      std::string(sinew::internal::kMaxEnvelopeBytes + 1, '\0'));
  const auto reply = stranger.reply(header.subject);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code(), static_cast<int>(ErrorCode::kResourceExhausted));
  EXPECT_EQ(reply->error().execution(), sinew::proto::DID_NOT_RUN);
  EXPECT_THAT(reply->error().message(),
              ::testing::HasSubstr("worker 'stranger' is no member of the job"));
  EXPECT_FALSE(stranger.is_down());
  EXPECT_EQ(worker(0).peer(1).call<&testapp::echo>("small"), "small");
}

TEST_P(TransportFaults, ACallThatRunsWhenItsConnectionBreaksIsAnsweredOnTheNext) {
  start_with_faults(2);
  const auto waiting = worker(0).peer(1).async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return worker(0).peer(1).call<&testapp::stalled>() == 1; }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(break_all(), 0u);
    EXPECT_EQ(worker(0).peer(1).call<&testapp::stalled>(), 1);
  }
  EXPECT_FALSE(waiting.done());
  worker(0).peer(1).call<&testapp::release>();
  EXPECT_EQ(waiting.wait(), 1);
}

TEST_P(TransportFaults, ReferencesSurviveBreaks) {
  start_with_faults(3);
  const auto counter = worker(0).peer(1).remote<Counter>(0);
  for (int i = 1; i <= 30; ++i) {
    if (i % 3 == 0) break_all();
    EXPECT_EQ(worker(0).peer(1 + i % 2).call<&testapp::add_to>(counter, 1), i);
  }
  EXPECT_TRUE(worker(0).peer(1).alive());
  EXPECT_TRUE(worker(0).peer(2).alive());
}

TEST_P(TransportFaults, OthersNoticeNothing) {
  start_with_faults(3);
  const auto waiting = worker(2).peer(1).async<&testapp::stall>();
  for (int i = 0; i < 10; ++i) {
    break_all();
    EXPECT_EQ(worker(2).peer(1).call<&testapp::add>(i, 1), i + 1);
    EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(i, 1), i + 1);
  }
  EXPECT_TRUE(eventually([&] { return worker(0).peer(1).call<&testapp::stalled>() == 1; }));
  worker(0).peer(1).call<&testapp::release>();
  EXPECT_EQ(waiting.wait(), 1);
}

TEST_P(TransportFaults, AConnectionThatCannotBeMadeForAWhileOnlyDelaysCalls) {
  start_with_faults(2);
  plan_->fail_connects([](const std::string&) { return true; },
                       absl::UnavailableError("no route for now"), 5);
  std::vector<sinew::Future<int>> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(worker(0).peer(1).async<&testapp::count>(i));
  break_all();
  for (const int runs : sinew::wait_all(std::move(calls))) EXPECT_EQ(runs, 1);
}

TEST_P(TransportFaults, ATimeoutSaysWhyThereIsNoConnection) {
  start_with_faults(2);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
  const auto all = [](const std::string&) { return true; };
  const auto out = plan_->fail_connects(all, absl::UnavailableError("no route for now"));
  const auto in = plan_->refuse_connects(all, absl::UnavailableError("nobody is let in"));
  break_all();
  sinew::CallOptions options;
  options.timeout = 2s;
  const RpcError error =
      error_of([&] { worker(0).peer(1).with(options).call<&testapp::add>(1, 2); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.message(),
              ::testing::AnyOf(::testing::HasSubstr("s, and cannot be reached: no route for now"),
                               ::testing::HasSubstr("s, and cannot be reached: nobody is let in")));
  plan_->remove(out);
  plan_->remove(in);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
}

TEST_P(TransportFaults, AFrozenWorkerIsFencedAndFindsItselfFenced) {
  // Not the one that holds the list.
  faulty_ = 2;
  start_with_faults(3, [](int, sinew::WorkerOptions& options) {
    options.heartbeat_interval = 100ms;
    options.lease = 4s;
  });
  const auto held_by_frozen = worker(2).peer(1).remote<Counter>(1);
  held_by_frozen.created().wait();
  const auto held_by_other = worker(0).peer(1).remote<Counter>(1);
  held_by_other.created().wait();
  const auto owned_by_frozen = worker(0).peer(2).remote<Counter>(1);
  owned_by_frozen.created().wait();
  const auto pending = worker(0).peer(2).async<&testapp::stall>();
  plan_->freeze();
  EXPECT_EQ(error_of([&] { pending.wait_for(60s); }).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error_of([&] { owned_by_frozen.call<&Counter::get>(); }).code(),
            ErrorCode::kUnavailable);
  // What it held is dropped once it must have fenced itself.
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["rref.forks"] == 1; }));
  EXPECT_EQ(held_by_other.call<&Counter::get>(), 1);
  plan_->thaw();
  // By its lease, or since it has heard that it is out.
  EXPECT_THAT(error_of([&] { held_by_frozen.call<&Counter::get>(); }).code(),
              ::testing::AnyOf(ErrorCode::kUnavailable, ErrorCode::kAborted));
  EXPECT_EQ(held_by_other.call<&Counter::get>(), 1);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 1), 2);
  abandon();
}

TEST_P(TransportFaults, AReaderThatStoppedCostsBoundedMemory) {
  start_with_faults(2, [](int, sinew::WorkerOptions& options) {
    options.send_window_bytes = 4 << 20;
    options.receive_window_bytes = 4 << 20;
    options.lease = 120s;
  });
  if (network_ == nullptr)
    GTEST_SKIP() << "over gRPC a process is stopped: Loss.ReaderThatStopsCostsBoundedMemory";
  worker(1).peer(0).call<&testapp::add>(1, 1);
  network_->freeze(worker(0).address());
  std::vector<sinew::Future<std::string>> calls;
  int refused = 0;
  for (int i = 0; i < 200 && refused == 0; ++i) {
    calls.push_back(worker(1).peer(0).async<&testapp::echo>(std::string(1 << 20, 'x')));
    if (calls.back().done() && calls.back().error() != nullptr) {
      const RpcError error = error_of([&] { calls.back().wait(); });
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
      EXPECT_EQ(error.execution(), sinew::Execution::kDidNotRun);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 1) << "after " << calls.size() << " calls of 1 MiB";
  network_->thaw(worker(0).address());
  for (std::size_t i = 0; i + 1 < calls.size(); ++i)
    EXPECT_EQ(calls[i].wait().size(), std::size_t{1} << 20);
}

}  // namespace
