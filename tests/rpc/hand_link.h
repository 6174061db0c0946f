// A link's shell over a transport that a test drives by hand.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/link/link_codec.h"
#include "sinew/rpc/link/link_runner.h"
#include "sinew/rpc/link/link_table.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/rpc/hand_transport.h"
#include "sinew/tests/support/manual_clock.h"
#include "sinew/tests/transport/happening.h"

namespace sinew::internal {

/// Nothing of what follows is about time.
inline const LeaseTerms kTerms{std::chrono::minutes(10), std::chrono::hours(1)};

/// Notes what it is told.
class Listener final : public LinkUser {
 public:
  /// Runs before each frame is noted.
  std::function<void(const Inbound&)> on_frame;

  void on_frames(std::vector<Inbound> frames) override {
    for (const Inbound& frame : frames) {
      if (on_frame) on_frame(frame);
      if (frame.header.is_void) continue;
      note(frame.lost.ok() ? "frame " + frame.envelope : absl::StrCat("lost ", frame.room()));
    }
  }
  void on_frames_ended(absl::Span<const LinkOutputs::Ended>) override {}
  void on_beat(std::uint64_t) override {}
  void on_room() override {}
  void on_up() override { note("up"); }
  void on_unreached() override {}
  void on_unreachable(const absl::Status&) override { note("unreachable"); }
  void on_suspected(bool) override {}
  void on_end(Gone, const absl::Status&) override { note("end"); }
  std::vector<std::string> noted() const {
    MutexLock lock(mutex_);
    return noted_;
  }

 private:
  void note(std::string text) {
    MutexLock lock(mutex_);
    noted_.push_back(std::move(text));
  }
  mutable Mutex mutex_;
  std::vector<std::string> noted_ ABSL_GUARDED_BY(mutex_);
};

/// The link of a worker with one peer of a smaller incarnation, whose end the test plays.
class LinkRunnerTest : public ::testing::Test {
 protected:
  struct Offered {
    std::shared_ptr<ConnectionHandler> handler;
    std::shared_ptr<HandConnection> connection;
  };
  LinkRunnerTest() : executor_(one_thread()), table_(options(), executor_, clock_, clock_) {
    table_.start(transport_);
    runner_ = table_.find_or_make(kPeer, "there")->runner;
  }
  ~LinkRunnerTest() override {
    const absl::Status over = absl::CancelledError("the test is over");
    table_.close(over);
    executor_.shutdown();
    for (const Offered& each : made_) each.handler->on_down(each.connection, over);
    transport_.shutdown();
  }

  SelfDescription peer() const { return {kPeer, "job", "there", 0, keys_.second, ""}; }
  /// What the peer says on a connection.
  std::string hello_on(const ConnectionName& connection,
                       const std::function<void(LinkHello&)>& change = {}) {
    proto::Hello hello;
    write_self(peer(), hello);
    write_identity(kSelf, *hello.mutable_expected());
    LinkHello link;
    link.connection = connection;
    link.terms = kTerms;
    if (change) change(link);
    write_link_hello(link, hello);
    return seal_hello(hello, peer());
  }
  /// The peer accepts the attempt.
  std::shared_ptr<HandConnection> accept(const HandTransport::Attempt& attempt,
                                         const std::function<void(LinkHello&)>& change = {}) {
    proto::Hello said;
    EXPECT_TRUE(said.ParseFromString(attempt.hello));
    const ConnectionName name = read_link_hello(said, kSelf.incarnation)->connection;
    auto connection = std::make_shared<HandConnection>(hello_on(name, change));
    attempt.handler->on_up(connection);
    made_.push_back({attempt.handler, connection});
    return connection;
  }
  /// The peer opens a connection, and says its first beat.
  Offered offer() {
    const std::string hello = hello_on({kPeer.incarnation, ++offers_});
    absl::StatusOr<Acceptor::Accepted> answer = table_.on_connection(hello, AuthenticatedPeer());
    EXPECT_TRUE(answer.ok()) << answer.status();
    Offered offered{answer->handler, std::make_shared<HandConnection>(hello)};
    offered.handler->on_up(offered.connection);
    LinkHeader beat;
    beat.beat = 1;
    hear(*offered.handler, offered.connection, {{beat, ""}});
    made_.push_back(offered);
    return offered;
  }
  static void hear(ConnectionHandler& handler, const std::shared_ptr<HandConnection>& connection,
                   const std::vector<std::pair<LinkHeader, std::string>>& said) {
    std::vector<Frame> frames;
    for (const auto& [header, envelope] : said) {
      Frame& frame = frames.emplace_back();
      frame.header = write_header(header);
      frame.envelope = envelope;
    }
    handler.on_frames(connection, Lane::kCalls, std::move(frames));
  }
  /// One that a timer makes.
  HandTransport::Attempt take_later() {
    EXPECT_TRUE(sinew::testing::eventually([this] {
      clock_.advance(std::chrono::milliseconds(10));
      return transport_.attempts() > 0;
    }));
    return transport_.take();
  }
  // What was posted has run.
  void settle() {
    Happening done;
    executor_.post([&done] { done.notify(); });
    EXPECT_TRUE(done.wait());
  }
  void send() {
    OutgoingFrame frame;
    frame.content = std::make_shared<Outbound>();
    EXPECT_TRUE(runner_->send(std::move(frame), LinkRunner::WhenFull::kFail).ok());
  }

  using Keys = std::pair<std::shared_ptr<const WorkerKey>, std::shared_ptr<const WorkerKey>>;
  // The peer follows it in the ring, so it is dialled at once (DialOrder).
  static Keys draw_keys() {
    Keys keys{WorkerKey::draw(), WorkerKey::draw()};
    const std::uint64_t self = keys.first->incarnation().value;
    const std::uint64_t peer = keys.second->incarnation().value;
    return self > peer && self - peer > std::uint64_t{1} << 63 ? keys : draw_keys();
  }
  const Keys keys_ = draw_keys();
  const WorkerInfo kSelf{"self", 0, keys_.first->incarnation()};
  const WorkerInfo kPeer{"peer", -1, keys_.second->incarnation()};
  const std::shared_ptr<Listener> user_ = std::make_shared<Listener>();
  bool peer_is_member_ = true;
  std::uint64_t offers_ = 0;
  // Connections that are to be taken down.
  std::vector<Offered> made_;
  Executor executor_;
  // Links go by the system's clock, and only their timers by this one.
  sinew::testing::ManualClock clock_{Clock::system().now()};
  HandTransport transport_;
  LinkTable table_;
  std::shared_ptr<LinkRunner> runner_;

  static Executor::Options one_thread() {
    Executor::Options options;
    options.num_threads = 1;
    return options;
  }
  LinkTableOptions options() const {
    LinkTableOptions options;
    options.self.worker = kSelf;
    options.self.key = keys_.first;
    options.self.job = "job";
    options.terms = kTerms;
    options.make_user = [user = user_](const std::shared_ptr<LinkRunner>&) { return user; };
    options.known_as = [](const WorkerInfo&) { return Refusal::kNone; };
    options.is_member = [this](const WorkerInfo&) { return peer_is_member_; };
    return options;
  }
};

}  // namespace sinew::internal
