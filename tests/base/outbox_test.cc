#include "sinew/rpc/base/outbox.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr Incarnation kSender{7};

TEST(Outbox, retries_with_growing_delays_until_acknowledged) {
  Outbox<std::string> outbox;
  EXPECT_FALSE(outbox.next_due().has_value());
  EXPECT_EQ(outbox.send("one", seconds(1)), 1u);
  std::vector<nanoseconds> gaps;
  nanoseconds last = seconds(1);
  for (int i = 0; i < 9; ++i) {
    const nanoseconds due = outbox.next_due().value();
    EXPECT_TRUE(outbox.due(due - nanoseconds(1)).empty());
    ASSERT_EQ(outbox.due(due).size(), 1u);
    gaps.push_back(due - last);
    last = due;
  }
  const std::vector<nanoseconds> expected = {
      milliseconds(0), milliseconds(200), milliseconds(400), milliseconds(800), seconds(1),
      seconds(1),      seconds(1),        seconds(1),        seconds(1)};
  EXPECT_EQ(gaps, expected);
  outbox.on_ack(ControlAck{1, {}});
  EXPECT_EQ(outbox.unacknowledged(), 0u);
  EXPECT_FALSE(outbox.next_due().has_value());
}

TEST(Outbox, takes_cumulative_and_selective_acknowledgements) {
  Outbox<std::string> outbox;
  for (const char* text : {"1", "2", "3", "4"}) outbox.send(text, seconds(0));
  EXPECT_EQ(outbox.due(seconds(0)).size(), 4u);
  outbox.on_ack(ControlAck{1, {3, 99}});
  const auto due = outbox.due(seconds(1));
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0].payload, "2");
  EXPECT_EQ(due[1].payload, "4");
}

TEST(Outbox, believes_no_acknowledgement_of_what_it_never_sent) {
  Outbox<std::string> outbox;
  outbox.send("one", seconds(0));
  outbox.on_ack(ControlAck{1000000, {1}});
  EXPECT_EQ(outbox.unacknowledged(), 1u);
}

TEST(Outbox, keeps_what_is_beyond_the_window_back) {
  OutboxOptions options;
  options.window = 2;
  Outbox<int> outbox(options);
  for (int i = 0; i < 5; ++i) outbox.send(i, seconds(0));
  EXPECT_EQ(outbox.due(seconds(0)).size(), 2u);
  outbox.on_ack(ControlAck{0, {2}});  // the window starts at the oldest one
  EXPECT_TRUE(outbox.due(seconds(0)).empty());
  outbox.on_ack(ControlAck{2, {}});
  EXPECT_EQ(outbox.due(seconds(0)).size(), 2u);
}

TEST(Outbox, drops_everything_when_the_peer_is_lost) {
  Outbox<int> outbox;
  outbox.send(1, seconds(0));
  outbox.peer_lost();
  EXPECT_EQ(outbox.send(2, seconds(0)), 0u);
  EXPECT_TRUE(outbox.due(seconds(9)).empty());
  EXPECT_EQ(outbox.unacknowledged(), 0u);
}

TEST(Inbox, tells_new_from_repeated_foreign_and_far) {
  Inbox inbox(kSender);
  EXPECT_FALSE(inbox.ack_due());
  EXPECT_EQ(inbox.accept(kSender, 2), Inbox::Verdict::kNew);
  EXPECT_EQ(inbox.accept(kSender, 2), Inbox::Verdict::kRepeated);
  EXPECT_EQ(inbox.accept(kSender, 1), Inbox::Verdict::kNew);
  EXPECT_EQ(inbox.accept(kSender, 1), Inbox::Verdict::kRepeated);
  EXPECT_EQ(inbox.accept(kSender, 0), Inbox::Verdict::kForeign);
  EXPECT_EQ(inbox.accept(Incarnation{8}, 3), Inbox::Verdict::kForeign);
  EXPECT_EQ(inbox.accept(kSender, 2 + Inbox::kWindow + 1), Inbox::Verdict::kTooFar);
  EXPECT_EQ(inbox.accept(kSender, ~std::uint64_t{0}), Inbox::Verdict::kTooFar);
  EXPECT_EQ(inbox.accept(kSender, 2 + Inbox::kWindow), Inbox::Verdict::kNew);
  EXPECT_TRUE(inbox.ack_due());
  const ControlAck ack = inbox.take_ack();
  EXPECT_EQ(ack.cumulative, 2u);
  EXPECT_EQ(ack.selective, std::vector<std::uint64_t>{2 + Inbox::kWindow});
  EXPECT_FALSE(inbox.ack_due());
}

// Every order of sending, delivering, dropping and repeating of messages and acknowledgements, for
// three messages and four losses or repetitions: handed over at most once, and in the end once
// each.
class Channel {
 public:
  struct State {
    Outbox<int> outbox;
    Inbox inbox{kSender};
    int sent = 0;
    std::multiset<std::uint64_t> messages;
    std::multiset<std::pair<std::uint64_t, std::vector<std::uint64_t>>> acks;
    std::map<std::uint64_t, int> handed_over;
    int faults = 4;
    nanoseconds now{0};
  };

  void visit(const State& state) {
    if (!seen_.insert(key(state)).second) return;
    if (state.sent < 3) {
      State next = state;
      next.outbox.send(next.sent++, next.now);
      transmit(next);
      visit(next);
    }
    for (const std::uint64_t sequence :
         std::set<std::uint64_t>(state.messages.begin(), state.messages.end())) {
      deliver(state, sequence);
      if (state.faults == 0) continue;
      State next = state;
      --next.faults;
      next.messages.erase(next.messages.find(sequence));
      visit(next);
      next.messages.insert(sequence);
      next.messages.insert(sequence);
      visit(next);
    }
    for (const auto& ack : state.acks) {
      State next = state;
      next.acks.erase(next.acks.find(ack));
      if (state.faults > 0) {
        State dropped = next;
        --dropped.faults;
        visit(dropped);
      }
      next.outbox.on_ack(ControlAck{ack.first, ack.second});
      visit(next);
    }
    if (state.messages.empty() && state.acks.empty()) retry(state);
  }

  std::size_t states() const { return seen_.size(); }
  std::size_t endings() const { return endings_; }

 private:
  static void transmit(State& state) {
    for (const auto& due : state.outbox.due(state.now)) state.messages.insert(due.sequence);
  }

  void deliver(const State& state, std::uint64_t sequence) {
    State next = state;
    next.messages.erase(next.messages.find(sequence));
    if (next.inbox.accept(kSender, sequence) == Inbox::Verdict::kNew) {
      ASSERT_EQ(++next.handed_over[sequence], 1) << "handed over twice";
    }
    const ControlAck ack = next.inbox.take_ack();
    next.acks.emplace(ack.cumulative, ack.selective);
    visit(next);
  }

  void retry(State state) {
    if (state.outbox.unacknowledged() != 0) {
      state.now += seconds(5);
      transmit(state);
      ASSERT_FALSE(state.messages.empty()) << "stuck";
      visit(state);
    } else if (state.sent == 3) {
      ++endings_;
      ASSERT_EQ(state.handed_over.size(), 3u);
    }
  }

  static std::string key(const State& state) {
    std::string text = std::to_string(state.sent) + "/" + std::to_string(state.faults) + "/" +
                       std::to_string(state.outbox.unacknowledged());
    Outbox<int> outbox = state.outbox;
    for (const auto& due : outbox.due(state.now + seconds(100))) {
      text += " o" + std::to_string(due.sequence);
    }
    for (const std::uint64_t sequence : state.messages) text += " m" + std::to_string(sequence);
    for (const auto& [cumulative, selective] : state.acks) {
      text += " a" + std::to_string(cumulative);
      for (const std::uint64_t sequence : selective) text += "+" + std::to_string(sequence);
    }
    for (const auto& [sequence, count] : state.handed_over) text += " h" + std::to_string(sequence);
    return text;
  }

  std::set<std::string> seen_;
  std::size_t endings_ = 0;
};

TEST(Outbox, every_order_of_losses_and_repetitions_hands_each_message_over_once) {
  Channel channel;
  channel.visit(Channel::State());
  std::cout << channel.states() << " states, " << channel.endings() << " endings\n";
  EXPECT_GT(channel.endings(), 0u);
}

}  // namespace
}  // namespace sinew::internal
