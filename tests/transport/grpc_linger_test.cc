// What may wait for company leaves all the same when none comes.

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "sinew/tests/transport/grpc_fixture.h"

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

}  // namespace
}  // namespace sinew::internal
