// How streams end: by either end, by an error, in time, with their call, with a worker.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "sinew/tests/streams/stream_methods.h"
#include "sinew/tests/streams/workers.h"

namespace {

using namespace std::chrono_literals;
using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Stream;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::HasSubstr;

class StreamEnds : public sinew::testing::StreamWorkersTest {
 protected:
  void start_two() { start(2, stream_methods::table()); }
  sinew::Peer peer() const { return worker(0).peer("worker1"); }
  bool writer_stopped_with(ErrorCode code) const {
    return stream_methods::stopped_with == static_cast<int>(code);
  }
};
SINEW_INSTANTIATE_STREAM_TEST(StreamEnds);

/// What comes until the error, and that.
template <class T>
std::pair<std::int64_t, RpcError> read_to_error(Stream<T>& stream) {
  std::int64_t read = 0;
  try {
    while (stream.next().has_value()) ++read;
  } catch (const RpcError& error) {
    return {read, error};
  }
  return {read, RpcError(ErrorCode::kOk, "")};
}

TEST_P(StreamEnds, AnErrorComesBehindTheItems) {
  start_two();
  Stream<std::int64_t> numbers = peer().call<&stream_methods::count_and_fail>(2000);
  const auto [read, error] = read_to_error(numbers);
  EXPECT_EQ(read, 2000);
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.message(), HasSubstr("the numbers are used up"));
  EXPECT_EQ(error.peer(), "worker1");
  EXPECT_EQ(error.origin(), sinew::ErrorOrigin::kHandler);
  // It is said again.
  EXPECT_EQ(error_of([&, &stream = numbers] { stream.next(); }).code(), ErrorCode::kDataLoss);
  EXPECT_TRUE(eventually([&] { return written(1) == 0; }));
}

TEST_P(StreamEnds, AWriterThatIsForgottenIsAnError) {
  start_two();
  Stream<std::int64_t> numbers = peer().call<&stream_methods::count_and_forget>(10);
  const auto [read, error] = read_to_error(numbers);
  EXPECT_EQ(read, 10);
  EXPECT_EQ(error.code(), ErrorCode::kAborted);
  EXPECT_THAT(error.message(), HasSubstr("went away without having ended it"));
}

TEST_P(StreamEnds, AReaderThatGoesStopsTheWriter) {
  start_two();
  { Stream<std::int64_t> numbers = peer().call<&stream_methods::count_for_ever>(8); }
  EXPECT_TRUE(eventually([&] { return writer_stopped_with(ErrorCode::kCancelled); }));
  // Nobody reads the result of that call.
  peer().async<&stream_methods::count_for_ever>(8);
  EXPECT_TRUE(
      eventually([&] { return writer_stopped_with(ErrorCode::kCancelled) && written(1) == 0; }));
}

TEST_P(StreamEnds, AMethodThatDoesNotReadToTheEndStopsTheWriter) {
  start_two();
  sinew::StreamOptions options;
  options.buffered_items = 4;
  auto [writer, numbers] = sinew::make_stream<double>(options);
  auto sum = peer().async<&stream_methods::first_sum>(3, std::move(numbers));
  const RpcError error = error_of([&to = writer] {
    for (;;) to.write(1);
  });
  EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  EXPECT_TRUE(writer.stopped());
  EXPECT_EQ(sum.take(), 3);
  EXPECT_TRUE(eventually([&] { return written(0) == 0; }));
}

TEST_P(StreamEnds, ACallThatFailsStopsTheWriter) {
  start_two();
  auto [writer, numbers] = sinew::make_stream<double>();
  auto refused = peer().async<&stream_methods::refuse>(std::move(numbers));
  EXPECT_EQ(error_of([&] { refused.wait(); }).code(), ErrorCode::kPermissionDenied);
  EXPECT_TRUE(eventually([&] { return writer.stopped(); }));
  EXPECT_EQ(error_of([&to = writer] { to.write(1); }).code(), ErrorCode::kCancelled);
}

TEST_P(StreamEnds, ACallThatIsNotServedStopsTheWriter) {
  start(2, stream_methods::table(), [](int rank, sinew::WorkerOptions& options) {
    if (rank == 1) options.methods = sinew::MethodTable();
  });
  auto [writer, numbers] = sinew::make_stream<double>();
  auto refused = peer().async<&stream_methods::sum_scaled>(1.0, std::move(numbers));
  EXPECT_EQ(error_of([&] { refused.wait(); }).code(), ErrorCode::kUnimplemented);
  EXPECT_TRUE(eventually([&] { return writer.stopped(); }));
  EXPECT_TRUE(eventually([&] { return written(0) == 0; }));
}

TEST_P(StreamEnds, AStreamThatIsNotSentStopsTheWriter) {
  start_two();
  auto ends = sinew::make_stream<double>();
  { const Stream<double> dropped = std::move(ends.stream); }
  EXPECT_TRUE(ends.writer.stopped());
  EXPECT_THAT(error_of([&] { ends.writer.write(1); }).message(), HasSubstr("it was not sent"));
}

TEST_P(StreamEnds, TheTimeOfTheCallIsTheStreams) {
  start_two();
  Stream<std::int64_t> numbers = peer().within(300ms).call<&stream_methods::count_for_ever>(8);
  const auto [read, error] = read_to_error(numbers);
  EXPECT_GT(read, 0);
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
  EXPECT_TRUE(eventually([&] {
    return writer_stopped_with(ErrorCode::kDeadlineExceeded) ||
           writer_stopped_with(ErrorCode::kCancelled);
  }));
  EXPECT_TRUE(eventually([&] { return written(1) == 0; }));
}

TEST_P(StreamEnds, AWriterThatNobodyReadsIsToldThatItIsTime) {
  start_two();
  Stream<std::int64_t> numbers = peer().within(300ms).call<&stream_methods::count_for_ever>(8);
  EXPECT_TRUE(eventually([&] { return writer_stopped_with(ErrorCode::kDeadlineExceeded); }));
  const auto [read, error] = read_to_error(numbers);
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
}

TEST_P(StreamEnds, CancellingTheCallEndsTheStream) {
  start_two();
  const sinew::CancellationSource source;
  sinew::CallOptions options;
  options.cancellation = source.token();
  Stream<std::int64_t> numbers = peer().with(options).call<&stream_methods::count_for_ever>(8);
  EXPECT_EQ(numbers.next(), 0);
  source.cancel();
  const auto [read, error] = read_to_error(numbers);
  EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  EXPECT_TRUE(eventually([&] { return writer_stopped_with(ErrorCode::kCancelled); }));

  auto [writer, doubles] = sinew::make_stream<double>();
  const sinew::CancellationSource other;
  options.cancellation = other.token();
  auto sum = peer().with(options).async<&stream_methods::sum_scaled>(1.0, std::move(doubles));
  writer.write(1);
  other.cancel();
  EXPECT_EQ(error_of([&] { sum.wait(); }).code(), ErrorCode::kCancelled);
  EXPECT_TRUE(eventually([&] { return writer.stopped(); }));
}

TEST_P(StreamEnds, ALostWriterEndsIt) {
  start_two();
  Stream<std::int64_t> numbers = peer().call<&stream_methods::count_for_ever>(8);
  EXPECT_EQ(numbers.next(), 0);
  worker(1).shutdown({false});
  std::int64_t expected = 1;
  const RpcError error = error_of([&, &stream = numbers] {
    while (const std::optional<std::int64_t> number = stream.next()) {
      ASSERT_EQ(*number, expected++);
    }
  });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  abandon();
}

TEST_P(StreamEnds, ALostReaderEndsIt) {
  start_two();
  auto [writer, doubles] = sinew::make_stream<double>();
  auto sum = peer().async<&stream_methods::sum_scaled>(1.0, std::move(doubles));
  for (int i = 0; i < 100; ++i) writer.write(i);
  worker(1).shutdown({false});
  const RpcError error = error_of([&to = writer] {
    for (;;) to.write(1);
  });
  EXPECT_TRUE(error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kCancelled)
      << error.what();
  abandon();
}

TEST_P(StreamEnds, AWorkerThatEndsEndsItsOwn) {
  start_two();
  Stream<std::int64_t> numbers = peer().call<&stream_methods::count_for_ever>(8);
  EXPECT_EQ(numbers.next(), 0);
  worker(0).shutdown({false});
  const auto [read, error] = read_to_error(numbers);
  EXPECT_NE(error.code(), ErrorCode::kOk);
  EXPECT_TRUE(eventually([&] { return stream_methods::stopped_with != 0; }));
  abandon();
}

}  // namespace
