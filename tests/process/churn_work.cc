#include "sinew/tests/process/churn_work.h"

namespace churn {
namespace {

/// Long enough for a call to one that is stopped to end by its loss.
constexpr std::chrono::seconds kCallTimeout{40};
constexpr std::size_t kMostHeld = 8;
/// Those of call_each(), which must not be those of a Work.
constexpr std::int64_t kOfTheEnd = std::int64_t{1} << 40;

}  // namespace

Work::Work(sinew::Worker worker, std::chrono::milliseconds pause, Tally& tally)
    : worker_(std::move(worker)), pause_(pause), tally_(tally) {
  for (int i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this, i] {
      Hand hand;
      hand.random.seed(worker_.info().incarnation.value + static_cast<std::uint64_t>(i));
      run(hand);
    });
  }
}

Work::~Work() {
  stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Work::run(Hand& hand) {
  const auto most = 2 * static_cast<std::uint64_t>(pause_.count()) + 1;
  while (!stopping_ && worker_.is_running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(hand.random() % most));
    act(hand);
  }
}

void Work::act(Hand& hand) {
  switch (hand.random() % 8) {
    case 0:
      return make(hand);
    case 1:
      return drop(hand);
    case 2:
    case 3:
      return use(hand);
    case 4:
      return share(hand);
    default:
      return call(hand);
  }
}

void Work::call(Hand& hand) {
  const sinew::WorkerInfo other = any_other(hand);
  if (other.rank < 0) return;
  const std::uint64_t self = worker_.info().incarnation.value;
  const std::int64_t number = ++numbers_;
  try {
    const std::string got = worker_.peer(other).with({kCallTimeout, {}}).call<&who>(self, number);
    const std::string expected = right_answer(other, self, number);
    if (got == expected) return tally_.right();
    tally_.wrong(absl::StrCat("answer: '", got, "' instead of '", expected, "'"));
  } catch (const sinew::RpcError& error) {
    tally_.failed(error, "call of " + text_of(other));
  }
}

void Work::make(Hand& hand) {
  const sinew::WorkerInfo other = any_other(hand);
  if (other.rank < 0) return;
  if (hand.held.size() >= kMostHeld) drop(hand);
  const auto value = static_cast<std::int64_t>(hand.random() >> 1);
  try {
    const auto token = worker_.peer(other).with({kCallTimeout, {}}).remote<Token>(value);
    token.created().wait();
    hand.held.emplace_back(token, value);
    tally_.right();
  } catch (const sinew::RpcError& error) {
    tally_.failed(error, "token at " + text_of(other));
  }
}

void Work::use(Hand& hand) {
  if (hand.held.empty()) return;
  const std::size_t index = hand.random() % hand.held.size();
  const auto [token, value] = hand.held[index];
  try {
    check("use of " + token.to_string(), token.within(kCallTimeout).call<&Token::get>(), value);
  } catch (const sinew::RpcError& error) {
    tally_.failed(error, "use of " + token.to_string());
    hand.held.erase(hand.held.begin() + static_cast<std::ptrdiff_t>(index));
  }
}

void Work::share(Hand& hand) {
  if (hand.held.empty()) return;
  const sinew::WorkerInfo third = any_other(hand);
  if (third.rank < 0) return;
  const auto [token, value] = hand.held[hand.random() % hand.held.size()];
  const std::string what = "use of " + token.to_string() + " by " + text_of(third);
  try {
    const sinew::Peer peer = worker_.peer(third).with({kCallTimeout, {}});
    const bool keeps = hand.random() % 2 == 0;
    check(what, keeps ? peer.call<&look_at_and_keep>(token) : peer.call<&look_at>(token), value);
  } catch (const sinew::RpcError& error) {
    tally_.failed(error, what);
  }
}

void Work::drop(Hand& hand) {
  if (hand.held.empty()) return;
  std::swap(hand.held[hand.random() % hand.held.size()], hand.held.back());
  hand.held.pop_back();
}

sinew::WorkerInfo Work::any_other(Hand& hand) const {
  const std::vector<sinew::WorkerInfo> members = worker_.workers();
  if (members.empty()) return {};
  const sinew::WorkerInfo chosen = members[hand.random() % members.size()];
  return chosen == worker_.info() ? sinew::WorkerInfo() : chosen;
}

void Work::check(const std::string& what, std::int64_t got, std::int64_t expected) {
  if (got == expected) return tally_.right();
  tally_.wrong(absl::StrCat(what, ": ", got, " instead of ", expected));
}

std::string call_each(const sinew::Worker& worker) {
  const std::uint64_t self = worker.info().incarnation.value;
  static std::atomic<std::int64_t> rounds{0};
  const std::int64_t number = kOfTheEnd + ++rounds;
  std::vector<std::pair<sinew::WorkerInfo, sinew::Future<std::string>>> calls;
  for (const sinew::WorkerInfo& other : worker.workers()) {
    if (other == worker.info()) continue;
    calls.emplace_back(other,
                       worker.peer(other).with({kCallTimeout, {}}).async<&who>(self, number));
  }
  std::string failures;
  for (const auto& [other, call] : calls) {
    try {
      const std::string got = call.wait();
      const std::string expected = right_answer(other, self, number);
      if (got != expected) absl::StrAppend(&failures, "'", got, "' instead of '", expected, "'; ");
    } catch (const sinew::RpcError& error) {
      absl::StrAppend(&failures, text_of(other), ": ", error.message(), "; ");
    }
  }
  return failures;
}

}  // namespace churn
