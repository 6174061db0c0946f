// Streams between processes, either end of which is killed or stopped. The test is a worker itself.

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "sinew/testing/error_of.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/streams/process_methods.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace {

using namespace std::chrono_literals;
using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Stream;
using sinew::testing::ChildProcess;
using sinew::testing::error_of;
using sinew::testing::eventually;
using Clock = std::chrono::steady_clock;

class StreamProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = stream_processes::table();
    options.init_method = "file://" + folder_.file("meet");
    options.lease = 10min;
    self_ = sinew::init_rpc(options);
  }
  void TearDown() override { self_.shutdown({false}); }

  std::unique_ptr<ChildProcess> spawn(const std::string& name) {
    auto child = std::make_unique<ChildProcess>(
        std::vector<std::string>{SINEW_STREAM_WORKER, name, folder_.file("meet")});
    EXPECT_EQ(child->receive(), "ok");
    EXPECT_TRUE(eventually([&] {
      try {
        return self_.peer(name).alive();
      } catch (const RpcError&) {
        return false;
      }
    }));
    return child;
  }
  sinew::Peer peer(const std::string& name) const {
    return self_.peer(name).within(sinew::kNoTimeout);
  }

  const sinew::testing::TemporaryFolder folder_;
  sinew::Worker self_;
};

TEST_F(StreamProcesses, AMillionItemsComeOnceAndInOrder) {
  const auto writer = spawn("writer");
  std::int64_t expected = 0;
  for (const std::int64_t number : peer("writer").call<&stream_processes::count>(1000000)) {
    ASSERT_EQ(number, expected++);
  }
  EXPECT_EQ(expected, 1000000);
}

TEST_F(StreamProcesses, AWriterThatIsKilledEndsTheStreamAtOnce) {
  for (int round = 0; round < 5; ++round) {
    const std::string name = "writer" + std::to_string(round);
    const auto writer = spawn(name);
    Stream<std::int64_t> numbers = peer(name).call<&stream_processes::count>(-1);
    std::int64_t expected = 0;
    for (; expected < 1000 * round + 1; ++expected) ASSERT_EQ(numbers.next(), expected);
    writer->signal(SIGKILL);
    const auto killed = Clock::now();
    const RpcError error = error_of([&] {
      while (const std::optional<std::int64_t> number = numbers.next()) {
        ASSERT_EQ(*number, expected++);
      }
    });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_EQ(error.peer(), name) << error.what();
    // Its lease is ten minutes.
    EXPECT_LT(Clock::now() - killed, 30s);
  }
}

TEST_F(StreamProcesses, AWriterOfTensorsThatIsKilledLeavesWholeOnes) {
  for (int round = 0; round < 5; ++round) {
    const std::string name = "writer" + std::to_string(round);
    const auto writer = spawn(name);
    Stream<at::Tensor> tensors = peer(name).call<&stream_processes::tensors>(-1);
    std::thread killer([&] {
      std::this_thread::sleep_for(20ms * (round + 1));
      writer->signal(SIGKILL);
    });
    std::int64_t expected = 0;
    const RpcError error = error_of([&] {
      while (const std::optional<at::Tensor> tensor = tensors.next()) {
        ASSERT_TRUE(at::all(*tensor == static_cast<double>(expected)).item<bool>());
        ++expected;
      }
    });
    killer.join();
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    RecordProperty("tensors_" + std::to_string(round), static_cast<int>(expected));
  }
}

TEST_F(StreamProcesses, AReaderThatIsKilledStopsTheWriterAtOnce) {
  for (int round = 0; round < 5; ++round) {
    const std::string name = "reader" + std::to_string(round);
    const auto reader = spawn(name);
    auto [writer, numbers] = sinew::make_stream<std::int64_t>();
    const auto passed = peer(name).async<&stream_processes::pass_on>("test", std::move(numbers));
    std::int64_t written = 0;
    for (; written < 500; ++written) writer.write(written);
    reader->signal(SIGKILL);
    const auto killed = Clock::now();
    const RpcError error = error_of([&, &to = writer] {
      for (;; ++written) to.write(written);
    });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_LT(Clock::now() - killed, 30s);
    EXPECT_EQ(error_of([&] { passed.wait_for(30s); }).code(), ErrorCode::kUnavailable);
    EXPECT_TRUE(eventually([&] { return self_.counters().at("streams.written") == 0; }));
    // What it had read it passed on, once and in order.
    std::int64_t expected = 0;
    for (const std::int64_t number : stream_processes::noted_numbers()) {
      ASSERT_EQ(number, expected++);
    }
  }
}

TEST_F(StreamProcesses, AReaderThatIsStoppedHoldsTheWriterUp) {
  const auto reader = spawn("reader");
  auto [writer, numbers] = sinew::make_stream<std::int64_t>();
  auto passed = peer("reader").async<&stream_processes::pass_on>("test", std::move(numbers));
  writer.write(0);
  EXPECT_TRUE(eventually([] {
    const std::lock_guard<std::mutex> lock(stream_processes::mutex);
    return !stream_processes::noted.empty();
  }));
  reader->signal(SIGSTOP);
  std::int64_t written = 1;
  sinew::Future<void> room;
  do {
    room = writer.write_async(written++);
  } while (room.done() && written < 1000000);
  // Its own buffer, and what was pulled before.
  EXPECT_LE(written, 3 * 1024 + 2);
  EXPECT_FALSE(room.done());
  reader->signal(SIGCONT);
  room.wait_for(60s);
  for (; written < 8000; ++written) writer.write(written);
  writer.finish();
  EXPECT_EQ(passed.take(), 8000);
  std::int64_t expected = 0;
  for (const std::int64_t number : stream_processes::noted_numbers()) {
    ASSERT_EQ(number, expected++);
  }
  EXPECT_EQ(expected, 8000);
}

TEST_F(StreamProcesses, AWriterThatLeavesEndsTheStream) {
  auto writer = spawn("writer");
  Stream<std::int64_t> numbers = peer("writer").call<&stream_processes::count>(-1);
  EXPECT_EQ(numbers.next(), 0);
  EXPECT_EQ(writer->finish(), 0);
  std::int64_t expected = 1;
  const RpcError error = error_of([&] {
    while (const std::optional<std::int64_t> number = numbers.next()) {
      ASSERT_EQ(*number, expected++);
    }
  });
  EXPECT_NE(error.code(), ErrorCode::kOk);
  RecordProperty("error", error.what());
}

}  // namespace
