#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "sinew/rpc/link/link.h"
#include "sinew/tests/link/support/outbound.h"

namespace sinew::internal {

inline constexpr Link::TimePoint kStart{std::chrono::seconds(1000)};
inline constexpr Incarnation kLow{1};
inline constexpr Incarnation kHigh{2};
inline constexpr LeaseTerms kTerms{std::chrono::seconds(1), std::chrono::seconds(10)};

inline OutgoingFrame request() {
  OutgoingFrame frame;
  frame.content = std::make_shared<Outbound>();
  return frame;
}

/// One end, whose other end is the test.
class LinkTest : public testing::Test {
 protected:
  explicit LinkTest(Incarnation self = kLow, bool takes_turns = false)
      : peer(self == kLow ? kHigh : kLow), link(options(self, peer, takes_turns), kStart) {}
  static Link::Options options(Incarnation self, Incarnation peer, bool takes_turns) {
    Link::Options options{self, peer, {}, kTerms};
    options.takes_turns = takes_turns;
    return options;
  }

  ConnectionName own(std::uint64_t attempt) const { return {link.options().self, attempt}; }
  ConnectionName theirs(std::uint64_t attempt) const { return {peer, attempt}; }
  LinkHello hello(const ConnectionName& connection, const ConnectionName& last_up = {}) const {
    LinkHello hello;
    hello.connection = connection;
    hello.last_up = last_up;
    hello.terms = kTerms;
    return hello;
  }

  Link::Outputs send() {
    Link::Outputs outputs;
    token = link.send(request(), now, outputs);
    return outputs;
  }
  Link::Outputs connect() {
    Link::Outputs outputs;
    link.connect(now, outputs);
    return outputs;
  }
  Link::Outputs take_turn() {
    Link::Outputs outputs;
    link.take_turn(now, outputs);
    return outputs;
  }
  Link::Outputs offer(const LinkHello& hello) {
    Link::Outputs outputs;
    refusal = link.on_offer(hello, now, outputs);
    return outputs;
  }
  Link::Outputs up(const ConnectionName& connection) {
    Link::Outputs outputs;
    link.on_up(connection, hello(connection), now, outputs);
    return outputs;
  }
  Link::Outputs down(const ConnectionName& connection, DownCause cause = DownCause::kBroken,
                     Refusal why = Refusal::kNone, bool proved = false) {
    Link::Outputs outputs;
    link.on_down(connection, cause, why, proved, now, outputs);
    return outputs;
  }
  Link::Outputs hear(const ConnectionName& on, const LinkHeader& header) {
    Link::Outputs outputs;
    delivery = link.on_frame(on, header, 0, now, outputs);
    return outputs;
  }
  Link::Outputs hear_request(const ConnectionName& on, std::uint64_t number) {
    LinkHeader header;
    header.kind = FrameKind::kRequest;
    header.number = number;
    return hear(on, header);
  }
  Link::Outputs poll() {
    Link::Outputs outputs;
    link.poll(now, outputs);
    return outputs;
  }
  /// Polls whenever the link wants to be polled, until then. Returns the last attempt to connect.
  std::uint64_t pass(std::chrono::nanoseconds time) {
    std::uint64_t dial = 0;
    const Link::TimePoint end = now + time;
    for (; link.wake() <= end; now = std::max(now, link.wake())) {
      now = std::max(now, link.wake());
      if (const std::uint64_t attempt = poll().dial; attempt != 0) dial = attempt;
    }
    now = end;
    if (const std::uint64_t attempt = poll().dial; attempt != 0) dial = attempt;
    return dial;
  }
  /// This end opens a connection, and it is up.
  void dial_up() {
    const std::uint64_t attempt = connect().dial;
    ASSERT_NE(attempt, 0);
    up(own(attempt));
    ASSERT_EQ(link.state(), Link::State::kUp);
  }
  /// The other end opens one, and says something on it.
  void accept_up(std::uint64_t attempt = 1) {
    offer(hello(theirs(attempt)));
    ASSERT_EQ(refusal, Refusal::kNone);
    up(theirs(attempt));
    hear(theirs(attempt), LinkHeader{});
    ASSERT_EQ(link.state(), Link::State::kUp);
  }

  const Incarnation peer;
  Link link;
  Link::TimePoint now = kStart;
  FrameToken token = 0;
  Refusal refusal = Refusal::kNone;
  LinkLanes::Delivery delivery = LinkLanes::Delivery::kDrop;
};

/// The end that does not decide when both open a connection.
class LinkFollowerTest : public LinkTest {
 protected:
  LinkFollowerTest() : LinkTest(kHigh) {}
};

/// The end that decides, and whose first attempt waits for a turn.
class LinkTurnTest : public LinkTest {
 protected:
  LinkTurnTest() : LinkTest(kLow, /*takes_turns=*/true) {}
};

}  // namespace sinew::internal
