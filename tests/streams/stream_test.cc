// Streams of workers in one process: results and arguments, their items, their order, and who waits
// for whom.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "sinew/rref/remote.h"
#include "sinew/tests/streams/stream_methods.h"
#include "sinew/tests/streams/workers.h"

namespace {

using namespace std::chrono_literals;
using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Stream;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Streams : public sinew::testing::StreamWorkersTest {
 protected:
  void start_two() { start(2, stream_methods::table()); }
  sinew::Peer peer() const { return worker(0).peer("worker1"); }
};
SINEW_INSTANTIATE_STREAM_TEST(Streams);

TEST_P(Streams, AMethodReturnsOne) {
  start_two();
  Stream<std::int64_t> numbers = peer().call<&stream_methods::count>(5000);
  std::int64_t expected = 0;
  for (const std::int64_t number : numbers) ASSERT_EQ(number, expected++);
  EXPECT_EQ(expected, 5000);
  // The end is said again.
  EXPECT_EQ(numbers.next(), std::nullopt);
  EXPECT_EQ(numbers.next_async().take(), std::nullopt);
  EXPECT_TRUE(eventually([&] { return written(1) == 0; }));
}

TEST_P(Streams, AnEmptyOneEnds) {
  start_two();
  Stream<std::int64_t> numbers = peer().call<&stream_methods::count>(0);
  EXPECT_EQ(numbers.next(), std::nullopt);
}

TEST_P(Streams, AMethodTakesOneAsItsLastArgument) {
  start_two();
  auto [writer, numbers] = sinew::make_stream<double>();
  auto sum = peer().async<&stream_methods::sum_scaled>(2.0, std::move(numbers));
  for (int i = 0; i < 3000; ++i) writer.write(i);
  writer.finish();
  EXPECT_EQ(sum.take(), 2.0 * 3000 * 2999 / 2);
}

TEST_P(Streams, AMethodReadsOneAndWritesAnother) {
  start_two();
  auto [writer, words] = sinew::make_stream<std::string>();
  Stream<std::string> louder = peer().call<&stream_methods::louder>(std::move(words));
  for (const char* word : {"a", "stream", "answers", "while", "it", "is", "written"}) {
    writer.write(word);
    EXPECT_EQ(louder.next(), std::string(word) + "!");
  }
  writer.finish();
  EXPECT_EQ(louder.next(), std::nullopt);
}

TEST_P(Streams, AWorkerCallsItself) {
  start_two();
  Stream<std::int64_t> numbers = worker(0).peer("worker0").call<&stream_methods::count>(2000);
  std::int64_t sum = 0;
  for (const std::int64_t number : numbers) sum += number;
  EXPECT_EQ(sum, 2000 * 1999 / 2);
}

TEST_P(Streams, ItemsOfAllKinds) {
  start_two();
  Stream<stream_methods::Record> records = peer().call<&stream_methods::records>(3);
  const std::optional<stream_methods::Record> record = records.next();
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->name, "record 0");
  EXPECT_THAT(record->numbers, ElementsAre(0, 1, 2));
  EXPECT_TRUE(records.next().has_value());
  EXPECT_TRUE(records.next().has_value());
  EXPECT_EQ(records.next(), std::nullopt);

  auto bytes = peer().call<&stream_methods::bytes>(std::string("some"));
  std::string text;
  for (const std::uint8_t byte : bytes) text += static_cast<char>(byte);
  EXPECT_EQ(text, "some");
}

TEST_P(Streams, TensorsAndReferences) {
  start_two();
  int count = 0;
  for (const at::Tensor& tensor : peer().call<&stream_methods::tensors>(40, 1 << 18)) {
    ASSERT_EQ(tensor.numel(), 1 << 18);
    ASSERT_EQ(tensor[7].item<float>(), static_cast<float>(count));
    ++count;
  }
  EXPECT_EQ(count, 40);

  std::vector<sinew::RRef<std::int64_t>> kept;
  for (const auto& reference : peer().call<&stream_methods::references>(10)) {
    kept.push_back(reference);
  }
  ASSERT_EQ(kept.size(), 10u);
  EXPECT_EQ(kept[9].to_here(), 9);
  // References that nobody reads are given up: the end of the test looks for leaks.
  auto unread = peer().call<&stream_methods::references>(100);
  unread.next();
}

TEST_P(Streams, AReaderThatDoesNotReadHoldsTheWriterUp) {
  start_two();
  stream_methods::written = 0;
  Stream<std::int64_t> numbers = peer().call<&stream_methods::count_for_ever>(16);
  // Its buffer, and two answers that are here.
  EXPECT_TRUE(eventually([&] { return stream_methods::written >= 16; }));
  const std::int64_t most = 16 + 2 * 16 + 1;
  EXPECT_LE(stream_methods::written, most);
  for (std::int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(numbers.next(), i);
    ASSERT_LE(stream_methods::written, i + 1 + most);
  }
  numbers.stop();
  EXPECT_TRUE(eventually(
      [&] { return stream_methods::stopped_with == static_cast<int>(ErrorCode::kCancelled); }));
  EXPECT_TRUE(eventually([&] { return written(1) == 0; }));
}

TEST_P(Streams, BytesHoldTheWriterUpToo) {
  start_two();
  sinew::StreamOptions options;
  options.buffered_bytes = 1 << 20;
  auto [writer, texts] = sinew::make_stream<std::string>(options);
  auto first = writer.write_async(std::string(600 << 10, 'x'));
  EXPECT_TRUE(first.done());
  auto second = writer.write_async(std::string(600 << 10, 'y'));
  EXPECT_FALSE(second.done());
  auto length = peer().async<&stream_methods::length>(std::move(texts));
  second.wait();
  writer.finish();
  EXPECT_EQ(length.take(), 2 * (600 << 10));
}

TEST_P(Streams, SeveralReadAndSeveralWrite) {
  start_two();
  Stream<std::int64_t> numbers = peer().call<&stream_methods::count>(20000);
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      std::int64_t last = -1;
      while (const std::optional<std::int64_t> number = numbers.next()) {
        EXPECT_GT(*number, last);
        last = *number;
        sum += *number;
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(sum, std::int64_t{20000} * 19999 / 2);

  auto [writer, doubles] = sinew::make_stream<double>();
  auto total = peer().async<&stream_methods::sum_scaled>(1.0, std::move(doubles));
  std::vector<std::thread> writers;
  for (int i = 0; i < 3; ++i) {
    writers.emplace_back([&to = writer] {
      for (int j = 0; j < 5000; ++j) to.write(1.0);
    });
  }
  for (std::thread& each : writers) each.join();
  writer.finish();
  EXPECT_EQ(total.take(), 15000.0);
}

TEST_P(Streams, FuturesOfItems) {
  start_two();
  auto [writer, words] = sinew::make_stream<std::string>();
  Stream<std::string> louder = peer().call<&stream_methods::louder>(std::move(words));
  std::vector<sinew::Future<std::optional<std::string>>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(louder.next_async());
  EXPECT_FALSE(waiting[0].done());
  writer.write("one");
  EXPECT_EQ(waiting[0].take(), "one!");
  writer.write("two");
  EXPECT_EQ(waiting[1].take(), "two!");
  writer.finish();
  EXPECT_EQ(waiting[2].take(), std::nullopt);
}

TEST_P(Streams, ManyAtOnce) {
  start_two();
  std::vector<Stream<std::int64_t>> streams;
  for (int i = 0; i < 40; ++i) streams.push_back(peer().call<&stream_methods::count>(300));
  for (std::int64_t number = 0; number < 300; ++number) {
    for (auto& stream : streams) ASSERT_EQ(stream.next(), number);
  }
  for (auto& stream : streams) EXPECT_EQ(stream.next(), std::nullopt);
}

TEST_P(Streams, ThroughAReference) {
  start_two();
  const auto source = peer().remote<stream_methods::Source>(7);
  std::vector<std::int64_t> read;
  for (const std::int64_t number : source.call<&stream_methods::Source::multiples>(3)) {
    read.push_back(number);
  }
  EXPECT_THAT(read, ElementsAre(0, 7, 14));
}

TEST_P(Streams, ALaterResult) {
  start_two();
  std::int64_t sum = 0;
  for (const std::int64_t number : peer().call<&stream_methods::count_later>(10)) sum += number;
  EXPECT_EQ(sum, 45);
}

TEST_P(Streams, MisuseIsSaid) {
  start_two();
  Stream<std::int64_t> none;
  EXPECT_EQ(error_of([&] { none.next(); }).code(), ErrorCode::kFailedPrecondition);
  auto [writer, numbers] = sinew::make_stream<double>();
  EXPECT_FALSE(numbers.valid());
  EXPECT_EQ(error_of([&] { numbers.next(); }).code(), ErrorCode::kFailedPrecondition);
  const RpcError repeated = error_of(
      [&] { peer().retrying().call<&stream_methods::sum_scaled>(1.0, std::move(numbers)); });
  EXPECT_EQ(repeated.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(repeated.message(), HasSubstr("a call with a stream cannot be repeated"));
  writer.finish();
  EXPECT_THAT(error_of([&] { writer.write(1); }).message(), HasSubstr("ended by its writer"));
  // One that was read from elsewhere goes nowhere.
  const RpcError passed_on = error_of([&] {
    peer().call<&stream_methods::sum_scaled>(1.0, peer().call<&stream_methods::halves>(3));
  });
  EXPECT_THAT(passed_on.message(), HasSubstr("that came from another worker, cannot be sent"));
}

}  // namespace
