#include "sinew/testing/stepped_network.h"

#include <algorithm>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/testing/internal/fault_table.h"
#include "sinew/testing/internal/message_choice.h"
#include "sinew/testing/internal/processors.h"
#include "sinew/testing/internal/step_queue.h"
#include "sinew/testing/internal/thread_snapshot.h"

namespace sinew::testing {

using internal::FaultTable;
using internal::StepQueue;
using internal::ThreadSnapshot;

namespace {

// Longer than a thread of a worker leaves something to one that sleeps: those look after each other
// every two milliseconds.
constexpr std::chrono::milliseconds kStill{4};
constexpr std::chrono::microseconds kPause{200};
// For rest, however short the patience is with which a test waits for a message; and so many looks,
// since a machine may stand still for longer.
constexpr std::chrono::seconds kLeastPatience{2};
constexpr int kLeastLooks = 100;

std::chrono::steady_clock::time_point deadline_of(std::chrono::nanoseconds patience) {
  return std::chrono::steady_clock::now() + patience;
}

[[noreturn]] void fail(const std::string& what, const StepQueue& queue) {
  std::ostringstream text;
  text << what << "; under way:";
  const std::vector<Message> messages = queue.list();
  for (const Message& message : messages) text << "\n  " << message;
  if (messages.empty()) text << " nothing";
  throw Failure(text.str());
}

}  // namespace

SteppedNetwork::SteppedNetwork(std::shared_ptr<StepQueue> queue) : queue_(std::move(queue)) {}

SteppedNetwork::~SteppedNetwork() = default;

void SteppedNetwork::rest(Deadline deadline) const {
  deadline = std::max(deadline, deadline_of(kLeastPatience));
  ThreadSnapshot before = ThreadSnapshot::take();
  for (int looks = 1;; ++looks) {
    if (before.all_sleep()) {
      std::this_thread::sleep_for(kStill);
      // Or it is the processor that sleeps, with who was to wake by now.
      internal::visit_processors();
    } else {
      std::this_thread::sleep_for(kPause);
    }
    ThreadSnapshot after = ThreadSnapshot::take();
    const std::string awake = after.awake_since(before);
    if (awake.empty()) return;
    if (looks >= kLeastLooks && std::chrono::steady_clock::now() >= deadline) {
      fail(absl::StrCat("the process does not come to rest, because of its threads ", awake),
           *queue_);
    }
    before = std::move(after);
  }
}

std::vector<Message> SteppedNetwork::under_way() const {
  rest(deadline_of(kPatience));
  return queue_->list();
}

void SteppedNetwork::shuffle(std::uint64_t seed) { random_.emplace(seed); }

std::optional<Message> SteppedNetwork::step_at_rest(Deadline deadline) {
  rest(deadline);
  const std::vector<Message> all = queue_->list();
  if (all.empty()) return std::nullopt;
  const Message& chosen = all[random_ ? (*random_)() % all.size() : 0];
  queue_->let_go(chosen.number);
  return chosen;
}

std::vector<Message> SteppedNetwork::step(int count, std::chrono::nanoseconds patience) {
  if (count < 0) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat("SteppedNetwork::step() takes a number of messages, not ", count));
  }
  const Deadline deadline = deadline_of(patience);
  std::vector<Message> delivered;
  while (delivered.size() < static_cast<std::size_t>(count)) {
    if (std::optional<Message> next = step_at_rest(deadline)) {
      delivered.push_back(*std::move(next));
    } else if (std::chrono::steady_clock::now() >= deadline) {
      fail("waited in vain until a message is under way", *queue_);
    }
  }
  rest(deadline);
  return delivered;
}

std::vector<Message> SteppedNetwork::deliver_all(std::chrono::nanoseconds patience) {
  const Deadline deadline = deadline_of(patience);
  std::vector<Message> delivered;
  while (std::optional<Message> next = step_at_rest(deadline)) {
    delivered.push_back(*std::move(next));
    if (std::chrono::steady_clock::now() >= deadline) {
      fail(absl::StrCat("there are always more messages to deliver, after ", delivered.size()),
           *queue_);
    }
  }
  return delivered;
}

std::vector<Message> SteppedNetwork::run_until(const std::function<bool()>& condition,
                                               std::chrono::nanoseconds patience) {
  const Deadline deadline = deadline_of(patience);
  std::vector<Message> delivered;
  while (true) {
    rest(deadline);
    if (condition()) return delivered;
    if (std::chrono::steady_clock::now() >= deadline) {
      fail("waited in vain until the condition of run_until() is true", *queue_);
    }
    if (std::optional<Message> next = step_at_rest(deadline)) delivered.push_back(*std::move(next));
  }
}

std::vector<Message> SteppedNetwork::let_go(const Messages& messages, Fate fate,
                                            Deadline deadline) {
  std::optional<FaultTable::Verdict> verdict;
  if (fate == Fate::kDropped) verdict = FaultTable::kLost;
  while (true) {
    rest(deadline);
    internal::MessageChoice choice(messages);
    std::vector<Message> chosen;
    for (Message& message : queue_->list()) {
      if (choice.choose(message)) chosen.push_back(std::move(message));
    }
    for (const Message& message : chosen) {
      queue_->let_go(message.number, verdict);
      rest(deadline);
    }
    if (!chosen.empty()) return chosen;
    if (std::chrono::steady_clock::now() >= deadline) {
      std::ostringstream what;
      what << "waited in vain until there are " << messages;
      fail(what.str(), *queue_);
    }
  }
}

std::vector<Message> SteppedNetwork::deliver(const Messages& messages,
                                             std::chrono::nanoseconds patience) {
  return let_go(messages, Fate::kDelivered, deadline_of(patience));
}

std::vector<Message> SteppedNetwork::drop(const Messages& messages,
                                          std::chrono::nanoseconds patience) {
  return let_go(messages, Fate::kDropped, deadline_of(patience));
}

}  // namespace sinew::testing
