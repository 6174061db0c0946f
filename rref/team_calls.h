#pragma once

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rref/internal/team_arrivals.h"

namespace sinew {

/// What one member of a Team has answered.
template <class R>
struct TeamAnswer {
  WorkerInfo member;
  /// Is done.
  Future<R> result;

  bool ok() const { return result.error() == nullptr; }
  /// The member was lost before it could answer; not a worker that it has called.
  bool lost() const { return internal::is_loss(result.error()); }
  /// Throws what the call failed with: kUnavailable if the member was lost.
  decltype(auto) value() const { return result.value(); }
};

/// Calls of all members of a Team that are under way. Answers are taken one by one, as they come:
///
///     for (const auto& answer : team.call_all<&app::Observer::play>(agent)) {
///       if (answer.ok()) steps += answer.value();
///     }
///
/// Dropping it does not end the calls. An object is for one thread at a time.
template <class R>
class TeamCalls {
 public:
  using Answer = TeamAnswer<R>;

  TeamCalls() = default;
  explicit TeamCalls(std::vector<Answer> calls) : state_(std::make_shared<State>()) {
    state_->calls = std::move(calls);
    for (std::size_t i = 0; i < state_->calls.size(); ++i) {
      // It keeps its own state, not the calls: those would keep each other.
      state_->calls[i].result.on_done(
          [arrivals = state_->arrivals, i](const Future<R>&) { arrivals->add(i); });
    }
  }

  /// How many members were called.
  std::size_t size() const { return state_ == nullptr ? 0 : state_->calls.size(); }
  /// The next answer, an error too, in the order in which they come. Empty once all have been
  /// given. Blocks.
  std::optional<Answer> next() {
    if (given_ == size()) return std::nullopt;
    ++given_;
    return state_->calls[state_->arrivals->take().take()];
  }
  /// Those that are there once `count` members have answered without an error, or all have
  /// answered; or that are there when the time is over. In the order in which they came, those that
  /// next() has given left out. Blocks.
  std::vector<Answer> wait_for(std::size_t count, std::chrono::nanoseconds timeout) {
    std::vector<Answer> answers;
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (std::size_t good = 0; good < count && given_ < size();) {
      const Future<std::size_t> arrival = state_->arrivals->take();
      try {
        arrival.wait_for(end - std::chrono::steady_clock::now());
      } catch (const RpcError& error) {
        if (error.code() != ErrorCode::kDeadlineExceeded) throw;
        if (!state_->arrivals->give_up(arrival)) break;
      }
      ++given_;
      answers.push_back(state_->calls[arrival.value()]);
      good += answers.back().ok() ? 1 : 0;
    }
    return answers;
  }
  /// The results of all members, in the order of their ranks. Waits for all, then throws the first
  /// error in that order. Blocks.
  auto values() {
    if constexpr (std::is_void_v<R>) {
      for (const Answer& answer : all()) answer.value();
    } else {
      std::vector<R> values;
      for (const Answer& answer : all()) values.push_back(answer.value());
      return values;
    }
  }
  /// All answers, in the order of the members' ranks. Blocks.
  const std::vector<Answer>& all() {
    while (next()) {
    }
    static const std::vector<Answer> none;
    return state_ == nullptr ? none : state_->calls;
  }

  /// Single pass, as next() gives them.
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Answer;
    using difference_type = std::ptrdiff_t;
    using pointer = const Answer*;
    using reference = const Answer&;

    iterator() = default;
    explicit iterator(TeamCalls* calls) : calls_(calls) { ++*this; }
    reference operator*() const { return *answer_; }
    pointer operator->() const { return &*answer_; }
    iterator& operator++() {
      answer_ = calls_->next();
      if (!answer_) calls_ = nullptr;
      return *this;
    }
    friend bool operator==(const iterator& a, const iterator& b) { return a.calls_ == b.calls_; }
    friend bool operator!=(const iterator& a, const iterator& b) { return !(a == b); }

   private:
    TeamCalls* calls_ = nullptr;
    std::optional<Answer> answer_;
  };
  iterator begin() { return iterator(this); }
  iterator end() { return iterator(); }

 private:
  struct State {
    std::vector<Answer> calls;
    const std::shared_ptr<internal::TeamArrivals> arrivals =
        std::make_shared<internal::TeamArrivals>();
  };

  std::shared_ptr<State> state_;
  std::size_t given_ = 0;
};

}  // namespace sinew
