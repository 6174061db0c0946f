// What may wait for company leaves together with it, and all the same when none comes.

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/transport/grpc/connection/lane_writer.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/transport/grpc_fixture.h"
#include "sinew/tests/transport/happening.h"

namespace sinew::internal {
namespace {

class GrpcLinger : public ::testing::Test {
 protected:
  void SetUp() override {
    connection_ = a_.transport->connect(b_.address(), "hi", "", opener_);
    ASSERT_TRUE(opener_->wait_up()) << opener_->reason();
    acceptor_ = b_.acceptor.handler();
    ASSERT_NE(acceptor_, nullptr);
    ASSERT_TRUE(acceptor_->wait_up());
  }

  static Frame frame(const std::string& envelope, bool may_linger) {
    Frame frame;
    frame.envelope = envelope;
    frame.may_linger = may_linger;
    return frame;
  }

  Worker a_;
  Worker b_;
  std::shared_ptr<RecordingHandler> opener_ = std::make_shared<RecordingHandler>();
  std::shared_ptr<RecordingHandler> acceptor_;
  std::shared_ptr<Connection> connection_;
};

// This thread never waits for a future, nothing follows, and nothing arrives: the timer is left.
TEST_F(GrpcLinger, FramesOfAThreadThatNeverWaitsLeave) {
  for (std::size_t sent = 1; sent <= 5; ++sent) {
    ASSERT_TRUE(connection_->send(Lane::kCalls, frame("x", true)).ok());
    ASSERT_TRUE(acceptor_->wait_frames(Lane::kCalls, sent)) << sent;
  }
}

/// Whose writes end at once.
class CountingStream final : public LaneStream {
 public:
  CountingStream() : LaneStream(StreamKind::kCalls, AfterEnd::kNoReads, nullptr) {}
  std::atomic<int> writes{0};

 private:
  std::optional<bool> issue_write(const grpc::ByteBuffer&, WriteMode) override {
    ++writes;
    return true;
  }
  void issue_read(grpc::ByteBuffer*) override {}
  void issue_end(const EndState&) override {}
};

/// Writes to a stream; the tasks that use it are those of an executor with short ones.
class SharedPacket : public ::testing::Test {
 protected:
  SharedPacket() { writer_->open(stream_, WriterStart::kIdle); }

  static PacketFrame frame() {
    PacketFrame frame;
    frame.envelope = "x";
    return frame;
  }
  static Executor::Options options() {
    Executor::Options options;
    options.num_threads = 2;
    return options;
  }
  /// Runs `task` with further, short tasks behind it.
  void run_before_others(Task task) {
    std::vector<Task> tasks;
    tasks.push_back(std::move(task));
    for (int i = 0; i < 100; ++i) tasks.emplace_back([] {});
    executor_.post_all(std::move(tasks));
  }
  bool is_idle() const { return executor_.stats().queued_tasks == 0 && writer_->kept_bytes() == 0; }

  std::shared_ptr<CountingStream> stream_ = std::make_shared<CountingStream>();
  std::shared_ptr<LaneWriter> writer_ = std::make_shared<LaneWriter>(1 << 20);
  Executor executor_{options()};
};

TEST_F(SharedPacket, WhoWaitsLeavesItsFramesToTheTaskThatIsAboutToFlush) {
  // Whether a task finds others behind it is up to the threads; mostly it does.
  const bool shared = testing::eventually([&] {
    const auto left = std::make_shared<Happening>();
    const auto gate = std::make_shared<Happening>();
    bool is_left = false;
    run_before_others([this, left, gate, &is_left] {
      writer_->queue(frame());
      is_left = writer_->leave_to_executor(writer_);
      if (!is_left) writer_->flush();
      left->notify();
      gate->wait();
    });
    if (!left->wait()) return false;
    writer_->queue(frame());
    const int before = stream_->writes;
    writer_->flush_unless_due();
    const bool stayed = is_left && stream_->writes == before && writer_->kept_bytes() > 0;
    gate->notify();
    EXPECT_TRUE(testing::eventually([&] { return is_idle(); }));
    return stayed;
  });
  EXPECT_TRUE(shared);
}

TEST_F(SharedPacket, NotToOneThatHasFlushed) {
  for (int round = 0; round < 100; ++round) {
    const auto ran = std::make_shared<Happening>();
    run_before_others([this, ran] {
      writer_->queue(frame());
      if (!writer_->leave_to_executor(writer_)) writer_->flush();
      ran->notify();
    });
    ASSERT_TRUE(ran->wait());
    ASSERT_TRUE(testing::eventually([&] { return is_idle(); }));
    // The last task may not have ended.
    ASSERT_TRUE(testing::eventually([&] {
      writer_->queue(frame());
      writer_->flush_unless_due();
      return writer_->kept_bytes() == 0;
    }));
  }
  EXPECT_FALSE(writer_->leave_to_executor(writer_)) << "this thread runs no task";
}

TEST_F(GrpcLinger, FramesLeftToATaskLeaveThoughTheNextOneIsLong) {
  Executor::Options options;
  options.num_threads = 2;
  std::size_t sent = 0;
  Executor executor(options);
  for (int round = 0; round < 20; ++round) {
    const auto gate = std::make_shared<Happening>();
    const auto ran = std::make_shared<Happening>();
    std::vector<Task> tasks;
    tasks.emplace_back([this, ran] {
      EXPECT_TRUE(connection_->send(Lane::kCalls, frame("reply", false)).ok());
      ran->notify();
    });
    // Not a wait that the executor knows of.
    tasks.emplace_back([gate] { gate->wait(); });
    executor.post_all(std::move(tasks));
    ASSERT_TRUE(ran->wait());
    EXPECT_TRUE(connection_->send(Lane::kCalls, frame("call", true)).ok());
    const Promise<void> never;
    EXPECT_THROW(never.future().wait_for(std::chrono::milliseconds(1)), RpcError);
    sent += 2;
    EXPECT_TRUE(acceptor_->wait_frames(Lane::kCalls, sent));
    gate->notify();
  }
}

}  // namespace
}  // namespace sinew::internal
