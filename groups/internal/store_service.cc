#include "sinew/groups/internal/store_service.h"

#include <utility>
#include <vector>

#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/future.h"

namespace sinew::internal {
namespace {

class LocalStore final : public StoreBackend {
 public:
  explicit LocalStore(std::shared_ptr<StoreService> service) : service_(std::move(service)) {}

  absl::StatusOr<proto::StoreReply> call(proto::StoreRequest request,
                                         Clock::TimePoint deadline) override {
    request.set_timeout_ms(milliseconds_until(deadline));
    const Promise<proto::StoreReply> promise(nullptr);
    service_->serve(
        request, [promise](proto::StoreReply reply) { promise.try_set_value(std::move(reply)); });
    // The service keeps the deadline.
    proto::StoreReply reply = promise.future().take();
    const absl::Status status = status_of(reply);
    if (!status.ok()) return status;
    return reply;
  }

 private:
  const std::shared_ptr<StoreService> service_;
};

}  // namespace

StoreService::RequestId StoreService::serve(const proto::StoreRequest& request, OnReply on_reply) {
  Calls calls;
  RequestId id = 0;
  {
    MutexLock lock(mutex_);
    id = ++last_id_;
    if (stopped_.ok()) {
      waiting_.emplace(id, std::move(on_reply));
      calls = take_locked(table_.handle(id, request, Clock::system().now()));
      set_timer_locked();
    } else {
      calls.emplace_back(std::move(on_reply), reply_of(stopped_));
    }
  }
  for (auto& [call, reply] : calls) call(std::move(reply));
  return id;
}

void StoreService::forget(RequestId id) {
  OnReply dropped;
  MutexLock lock(mutex_);
  table_.forget(id);
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  dropped = std::move(found->second);
  waiting_.erase(found);
  lock.unlock();
}

void StoreService::stop(const absl::Status& reason) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    calls = take_locked(table_.fail_all(reason));
  }
  for (auto& [call, reply] : calls) call(std::move(reply));
}

StoreService::Calls StoreService::take_locked(std::vector<StoreTable::Answer> answers) {
  Calls calls;
  for (StoreTable::Answer& answer : answers) {
    const auto found = waiting_.find(answer.waiter);
    if (found == waiting_.end()) continue;
    calls.emplace_back(std::move(found->second), std::move(answer.reply));
    waiting_.erase(found);
  }
  return calls;
}

void StoreService::set_timer_locked() {
  const std::optional<Clock::TimePoint> next = table_.next_expiry();
  if (!next || (timer_for_ && *timer_for_ <= *next)) return;
  timer_for_ = next;
  timers_.run_at(*next, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->on_timer();
  });
}

void StoreService::on_timer() {
  Calls calls;
  {
    MutexLock lock(mutex_);
    const Clock::TimePoint now = Clock::system().now();
    if (timer_for_ && *timer_for_ <= now) timer_for_.reset();
    calls = take_locked(table_.expire(now));
    set_timer_locked();
  }
  for (auto& [call, reply] : calls) call(std::move(reply));
}

std::shared_ptr<StoreBackend> make_local_store(std::shared_ptr<StoreService> service) {
  return std::make_shared<LocalStore>(std::move(service));
}

}  // namespace sinew::internal
