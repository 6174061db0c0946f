#include "sinew/rpc/calls/object_turns.h"

#include <utility>
#include <vector>

#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

ObjectTurns::ObjectTurns() : secret_(random_secret()) {}

ObjectTurns::Turn ObjectTurns::take(const TurnTable::Key& key) {
  MutexLock lock(mutex_);
  return Turn(shared_from_this(), table_.take(key));
}

std::optional<std::uint64_t> ObjectTurns::first(const TurnTable::Key& key) const {
  MutexLock lock(mutex_);
  const std::optional<TurnTable::Place> place = table_.first(key);
  if (!place.has_value()) return std::nullopt;
  return token_of(*place);
}

void ObjectTurns::leave(TurnTable::Place place) {
  MutexLock lock(mutex_);
  leaving_.push_back(place);
  if (takes_out_) return;
  takes_out_ = true;
  while (!leaving_.empty()) {
    const TurnTable::Place left = leaving_.back();
    leaving_.pop_back();
    Task dropped = take_waiting_locked(left);
    Task next;
    if (const std::optional<TurnTable::Place> first = table_.leave(left); first.has_value()) {
      next = take_waiting_locked(*first);
    }
    lock.unlock();
    if (next) std::move(next)();
    next = nullptr;
    dropped = nullptr;
    lock.lock();
  }
  takes_out_ = false;
}

Task ObjectTurns::take_waiting_locked(TurnTable::Place place) {
  const auto found = waiting_.find(place);
  if (found == waiting_.end()) return nullptr;
  Task then = std::move(found->second);
  waiting_.erase(found);
  return then;
}

ObjectTurns::Turn::Turn(std::shared_ptr<ObjectTurns> turns, TurnTable::Place place)
    : turns_(std::move(turns)), place_(place) {}

ObjectTurns::Turn& ObjectTurns::Turn::operator=(Turn&& other) noexcept {
  if (this == &other) return *this;
  leave();
  turns_ = std::move(other.turns_);
  place_ = other.place_;
  return *this;
}

bool ObjectTurns::Turn::wait(Task then) {
  MutexLock lock(turns_->mutex_);
  if (turns_->table_.wait(place_)) return true;
  turns_->waiting_.emplace(place_, std::move(then));
  return false;
}

void ObjectTurns::Turn::leave() {
  if (const auto turns = std::exchange(turns_, nullptr)) turns->leave(place_);
}

std::size_t ObjectTurns::Turn::ahead() const {
  MutexLock lock(turns_->mutex_);
  return turns_->table_.ahead_of(place_);
}

// ---- The order of one caller.

CallerOrder::Ticket CallerOrder::on_call(std::uint64_t number) {
  MutexLock lock(mutex_);
  order_.on_call(number);
  return Ticket(shared_from_this(), number);
}

void CallerOrder::on_frame(std::uint64_t number) {
  std::vector<Task> next;
  {
    MutexLock lock(mutex_);
    next = take_locked(order_.on_frame(number));
  }
  for (Task& then : next) std::move(then)();
}

void CallerOrder::pass(std::uint64_t number) {
  Entering dropped;
  std::vector<Task> next;
  {
    MutexLock lock(mutex_);
    if (const auto own = entering_.find(number); own != entering_.end()) {
      dropped = std::move(own->second);
      entering_.erase(own);
    }
    next = take_locked(order_.pass(number));
  }
  for (Task& then : next) std::move(then)();
}

void CallerOrder::end() {
  std::vector<Task> next;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    ArrivalOrder::Numbers all;
    for (const auto& [number, entering] : entering_) all.push_back(number);
    next = take_locked(all);
  }
  for (Task& then : next) std::move(then)();
}

std::vector<Task> CallerOrder::take_locked(const ArrivalOrder::Numbers& numbers) {
  std::vector<Task> next;
  for (const std::uint64_t number : numbers) {
    const auto found = entering_.find(number);
    std::move(found->second.take)();
    next.push_back(std::move(found->second.then));
    entering_.erase(found);
  }
  return next;
}

CallerOrder::Ticket::Ticket(std::shared_ptr<CallerOrder> order, std::uint64_t number)
    : order_(std::move(order)), number_(number) {}

CallerOrder::Ticket& CallerOrder::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  pass();
  order_ = std::move(other.order_);
  number_ = other.number_;
  return *this;
}

bool CallerOrder::Ticket::enter(Task take, Task then) {
  const std::shared_ptr<CallerOrder> order = std::exchange(order_, nullptr);
  if (order == nullptr) {  // of a caller whose calls have no order
    std::move(take)();
    return true;
  }
  std::vector<Task> next;
  bool is_taken = false;
  {
    MutexLock lock(order->mutex_);
    order->entering_.emplace(number_, Entering{std::move(take), std::move(then)});
    next = order->take_locked(order->ended_ ? ArrivalOrder::Numbers{number_}
                                            : order->order_.ready(number_));
    is_taken = !order->entering_.contains(number_);
  }
  // The first of them is this one's own: the caller goes on itself.
  for (std::size_t i = is_taken ? 1 : 0; i < next.size(); ++i) std::move(next[i])();
  return is_taken;
}

void CallerOrder::Ticket::pass() {
  if (const auto order = std::exchange(order_, nullptr)) order->pass(number_);
}

}  // namespace sinew::internal
