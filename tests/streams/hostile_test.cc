// Pulls that no reading end of ours would send, and streams that are none.

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/streams/internal/stream_answer.h"
#include "sinew/streams/internal/stream_sender.h"
#include "sinew/tests/streams/stream_methods.h"
#include "sinew/tests/streams/workers.h"

namespace {

using namespace std::chrono_literals;
using sinew::ErrorCode;
using sinew::Future;
using sinew::RpcError;
using sinew::internal::CallBuilder;
using sinew::internal::TypedPendingCall;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Answer =
    std::tuple<std::uint64_t, std::vector<std::int64_t>, std::int64_t, std::optional<std::string>>;

template <class R>
Future<R> send(CallBuilder& call) {
  auto pending = std::make_unique<TypedPendingCall<R>>(call.runner());
  Future<R> future = pending->future();
  call.send(std::move(pending));
  return future;
}

class StreamStrangers : public sinew::testing::StreamWorkersTest {
 protected:
  void start_three() { start(3, stream_methods::table()); }

  /// The id of a stream of worker1's that was sent to worker0, and which nobody reads.
  std::string open(const sinew::Peer& peer) {
    CallBuilder call(peer, "stream_methods::count_for_ever", "");
    call.argument().integer(8);
    return send<std::string>(call).take();
  }
  static Future<Answer> pull(const sinew::Peer& peer, const std::string& id, std::int64_t items = 8,
                             std::int64_t bytes = 1 << 20) {
    CallBuilder call(peer, sinew::internal::kPullMethod, "");
    call.argument().binary(id);
    call.argument().integer(items);
    call.argument().integer(bytes);
    return send<Answer>(call);
  }
  static Future<void> stop(const sinew::Peer& peer, const std::string& id) {
    CallBuilder call(peer, sinew::internal::kStopMethod, "");
    call.argument().binary(id);
    return send<void>(call);
  }
  std::int64_t written() const { return StreamWorkersTest::written(1); }
  sinew::Peer peer() const { return worker(0).peer("worker1"); }
};
SINEW_INSTANTIATE_STREAM_TEST(StreamStrangers);

TEST_P(StreamStrangers, OnlyTheWorkerToWhichItWasSentReads) {
  start_three();
  const std::string id = open(peer());
  EXPECT_EQ(id.size(), 16u);
  const sinew::Peer others = worker(2).peer("worker1");
  EXPECT_EQ(error_of([&] { pull(others, id).wait(); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { stop(others, id).wait(); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { pull(peer(), std::string(16, 'x')).wait(); }).code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { pull(peer(), "").wait(); }).code(), ErrorCode::kNotFound);
  // It is as it was.
  EXPECT_THAT(std::get<1>(pull(peer(), id, 2).take()), ElementsAre(0, 1));
  stop(peer(), id).wait();
  EXPECT_TRUE(eventually([&] { return written() == 0; }));
}

TEST_P(StreamStrangers, AbsurdCreditDoesNoHarm) {
  start_three();
  const std::string id = open(peer());
  for (const auto& [items, bytes] :
       {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 0}, {-1, 1}}) {
    EXPECT_EQ(error_of([&, items = items, bytes = bytes] {
                pull(peer(), id, items, bytes).wait();
              }).code(),
              ErrorCode::kInvalidArgument);
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::uint64_t next = 0;
  for (int i = 0; i < 100; ++i) {
    const Answer answer = pull(peer(), id, kMost, kMost).take();
    EXPECT_EQ(std::get<0>(answer), next);
    EXPECT_LE(std::get<1>(answer).size(), 9u);
    next += std::get<1>(answer).size();
  }
  stop(peer(), id).wait();
}

TEST_P(StreamStrangers, AFloodOfPullsIsRefused) {
  start_three();
  // One that has nothing to say.
  CallBuilder call(peer(), "stream_methods::silent", "");
  const std::string id = send<std::string>(call).take();
  std::vector<Future<Answer>> pulls;
  for (int i = 0; i < 200; ++i) pulls.push_back(pull(peer(), id));
  constexpr std::size_t kWait = sinew::internal::StreamSender::kMostPulls;
  std::size_t refused = 0;
  EXPECT_TRUE(eventually([&] {
    refused = 0;
    for (const Future<Answer>& each : pulls) refused += each.done() ? 1 : 0;
    return refused == 200 - kWait;
  }));
  for (const Future<Answer>& each : pulls) {
    if (!each.done()) continue;
    EXPECT_EQ(error_of([&] { each.wait(); }).code(), ErrorCode::kResourceExhausted);
  }
  stop(peer(), id).wait();
  std::size_t ended = 0;
  for (const Future<Answer>& each : pulls) {
    if (each.done() && each.error() != nullptr) continue;
    ended += std::get<2>(each.wait_for(60s)) == 2 ? 1 : 0;
  }
  EXPECT_EQ(ended, kWait);
}

TEST_P(StreamStrangers, OneThatIsNeverReadEndsInTime) {
  start_three();
  open(peer().within(200ms));
  EXPECT_EQ(written(), 1);
  EXPECT_TRUE(eventually([&] {
    return stream_methods::stopped_with == static_cast<int>(ErrorCode::kDeadlineExceeded);
  }));
  EXPECT_TRUE(eventually([&] { return written() == 0; }));
}

TEST_P(StreamStrangers, AnIdThatIsNoStreamIsAnError) {
  start_three();
  CallBuilder call(peer(), "stream_methods::not_a_stream", "");
  call.argument().integer(16);
  auto forged = send<sinew::Stream<std::int64_t>>(call).take();
  EXPECT_EQ(error_of([&] { forged.next(); }).code(), ErrorCode::kNotFound);
  CallBuilder other(peer(), "stream_methods::not_a_stream", "");
  other.argument().integer(5);
  const RpcError error = error_of([&] { send<sinew::Stream<std::int64_t>>(other).wait(); });
  EXPECT_THAT(error.message(), HasSubstr("the id of a stream has 16 bytes"));
}

TEST_P(StreamStrangers, ItemsOfAnotherTypeAreAnError) {
  start_three();
  CallBuilder call(peer(), "stream_methods::count", "");
  call.argument().integer(5);
  auto words = send<sinew::Stream<std::string>>(call).take();
  const RpcError error = error_of([&] { words.next(); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("expected a"));
  EXPECT_TRUE(eventually([&] { return written() == 0; }));
}

}  // namespace
