// Streams in coroutines of C++20: generators, and co_await of a stream.

#include "sinew/streams/coroutine.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sinew/tests/streams/workers.h"

namespace stream_coroutines {

std::atomic<int> living{0};
std::atomic<int> stopped_with{0};

struct Tracked {
  Tracked() { ++living; }
  ~Tracked() { --living; }
  Tracked(const Tracked&) = delete;
  Tracked& operator=(const Tracked&) = delete;
};

std::int64_t twice(std::int64_t number) { return 2 * number; }
sinew::Stream<std::int64_t> count(std::int64_t n);
sinew::Stream<std::int64_t> count_for_ever();
sinew::Stream<std::int64_t> fail_after(std::int64_t n);
sinew::Stream<std::int64_t> doubled(std::string by, sinew::Stream<std::int64_t> numbers);
sinew::Future<std::int64_t> sum(sinew::Stream<std::int64_t> numbers);

}  // namespace stream_coroutines

SINEW_METHOD(stream_coroutines::twice, stream_coroutines::count, stream_coroutines::count_for_ever,
             stream_coroutines::fail_after, stream_coroutines::doubled, stream_coroutines::sum);

namespace stream_coroutines {

sinew::Stream<std::int64_t> count(std::int64_t n) {
  const Tracked tracked;
  for (std::int64_t i = 0; i < n; ++i) co_yield i;
}

sinew::Stream<std::int64_t> count_for_ever() {
  const Tracked tracked;
  try {
    for (std::int64_t i = 0;; ++i) co_yield i;
  } catch (const sinew::RpcError& error) {
    stopped_with = static_cast<int>(error.code());
    throw;
  }
}

sinew::Stream<std::int64_t> fail_after(std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) co_yield i;
  throw sinew::RpcError(sinew::ErrorCode::kDataLoss, "used up");
}

/// Reads one stream, asks another worker for each item, and writes the answers.
sinew::Stream<std::int64_t> doubled(std::string by, sinew::Stream<std::int64_t> numbers) {
  const sinew::Peer peer = sinew::current_worker().peer(by);
  while (const std::optional<std::int64_t> number = co_await numbers) {
    co_yield co_await peer.async<&twice>(*number);
  }
}

sinew::Future<std::int64_t> sum(sinew::Stream<std::int64_t> numbers) {
  std::int64_t sum = 0;
  while (const std::optional<std::int64_t> number = co_await numbers) sum += *number;
  co_return sum;
}

}  // namespace stream_coroutines

namespace {

using sinew::ErrorCode;
using sinew::Stream;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::ElementsAre;

class StreamCoroutines : public sinew::testing::StreamWorkersTest {
 protected:
  void start_two() {
    using namespace stream_coroutines;
    start(2,
          sinew::MethodTable().add<&twice, &count, &count_for_ever, &fail_after, &doubled, &sum>(),
          // None is held by what waits.
          [](int, sinew::WorkerOptions& options) { options.num_threads = 1; });
  }
  sinew::Peer peer() const { return worker(0).peer("worker1"); }
};
SINEW_INSTANTIATE_STREAM_TEST(StreamCoroutines);

TEST_P(StreamCoroutines, AGeneratorIsAMethod) {
  start_two();
  std::int64_t expected = 0;
  for (const std::int64_t number : peer().call<&stream_coroutines::count>(5000)) {
    ASSERT_EQ(number, expected++);
  }
  EXPECT_EQ(expected, 5000);
  EXPECT_TRUE(eventually([] { return stream_coroutines::living == 0; }));
}

TEST_P(StreamCoroutines, ManyWaitAndHoldNoThread) {
  start_two();
  std::vector<Stream<std::int64_t>> streams;
  for (int i = 0; i < 100; ++i) {
    streams.push_back(peer().call<&stream_coroutines::count_for_ever>());
  }
  for (std::int64_t number = 0; number < 10; ++number) {
    for (auto& stream : streams) ASSERT_EQ(stream.next(), number);
  }
  streams.clear();
  EXPECT_TRUE(eventually([] { return stream_coroutines::living == 0; }));
  EXPECT_EQ(stream_coroutines::stopped_with, static_cast<int>(ErrorCode::kCancelled));
}

TEST_P(StreamCoroutines, WhatEscapesIsTheError) {
  start_two();
  auto numbers = peer().call<&stream_coroutines::fail_after>(3);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(numbers.next(), i);
  EXPECT_EQ(error_of([&] { numbers.next(); }).code(), ErrorCode::kDataLoss);
}

TEST_P(StreamCoroutines, OneReadsAndWrites) {
  start_two();
  auto [writer, numbers] = sinew::make_stream<std::int64_t>();
  auto doubled =
      peer().call<&stream_coroutines::doubled>(std::string("worker0"), std::move(numbers));
  std::vector<std::int64_t> read;
  for (std::int64_t i = 0; i < 3; ++i) {
    writer.write(i);
    read.push_back(doubled.next().value_or(-1));
  }
  writer.finish();
  EXPECT_THAT(read, ElementsAre(0, 2, 4));
  EXPECT_EQ(doubled.next(), std::nullopt);
}

TEST_P(StreamCoroutines, AMethodAwaitsItsItems) {
  start_two();
  auto [writer, numbers] = sinew::make_stream<std::int64_t>();
  auto sum = peer().async<&stream_coroutines::sum>(std::move(numbers));
  for (std::int64_t i = 0; i < 3000; ++i) writer.write(i);
  writer.finish();
  EXPECT_EQ(sum.take(), 3000 * 2999 / 2);
}

}  // namespace
