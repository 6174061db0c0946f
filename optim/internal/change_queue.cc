#include "sinew/optim/internal/change_queue.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// More than any owner has under way.
constexpr std::uint64_t kMostAhead = 4096;

RpcError not_followed() {
  return RpcError(ErrorCode::kAborted, "the standby does not follow these changes any more");
}

void complete(const Promise<FollowOutcome>& promise, const ChangeQueue::Begin& begin) {
  try {
    begin().on_done([promise](const Future<FollowOutcome>& done) {
      if (const std::exception_ptr error = done.error()) {
        promise.set_error(error);
      } else {
        promise.set_value(done.value());
      }
    });
  } catch (...) {
    promise.set_error(std::current_exception());
  }
}

}  // namespace

void ChangeQueue::begin(std::uint64_t stream) {
  Changes given_up;
  {
    MutexLock lock(mutex_);
    stream_ = stream;
    next_ = 0;
    given_up.swap(waiting_);
  }
  fail(given_up);
}

void ChangeQueue::end(std::uint64_t stream) {
  Changes given_up;
  {
    MutexLock lock(mutex_);
    if (stream != stream_) return;
    stream_ = 0;
    given_up.swap(waiting_);
  }
  fail(given_up);
}

Future<FollowOutcome> ChangeQueue::add(const ChangeId& id, Begin begin) {
  Waiting added{std::move(begin), {}};
  const Future<FollowOutcome> outcome = added.promise.future();
  {
    MutexLock lock(mutex_);
    if (id.stream == 0 || id.stream != stream_) throw not_followed();
    const bool is_new = id.number >= next_ && id.number - next_ < kMostAhead &&
                        waiting_.emplace(id.number, std::move(added)).second;
    if (!is_new) {
      throw RpcError(
          ErrorCode::kInvalidArgument,
          absl::StrFormat("change %d comes twice, or far ahead of change %d", id.number, next_));
    }
  }
  begin_those_in_turn();
  return outcome;
}

void ChangeQueue::fail(const Changes& changes) {
  for (const auto& [number, change] : changes) {
    change.promise.set_error(std::make_exception_ptr(not_followed()));
  }
}

// One thread at a time, or a change could overtake the one before it between the lock and its work.
void ChangeQueue::begin_those_in_turn() {
  bool is_first = true;
  while (true) {
    std::optional<Waiting> next;
    {
      MutexLock lock(mutex_);
      if (is_first && is_beginning_) return;
      is_first = false;
      const auto found = waiting_.find(next_);
      is_beginning_ = found != waiting_.end();
      if (!is_beginning_) return;
      next = std::move(found->second);
      waiting_.erase(found);
      ++next_;
    }
    complete(next->promise, next->begin);
  }
}

std::size_t ChangeQueue::waiting() const {
  MutexLock lock(mutex_);
  return waiting_.size();
}

}  // namespace sinew::internal
