#include "learner/seat.h"

#include <sstream>
#include <utility>

#include "sinew/examples/common/address_file.h"

namespace actor_learner {

Seat::Seat(sinew::WorkerOptions options, Publish publish, Tell tell)
    : publish_(std::move(publish)), tell_(std::move(tell)) {
  options.methods.add<&Learner::push>();
  options.on_rejoined = [this](const sinew::Worker& next) {
    tell_("was out of the job, and is back");
    take(next);
  };
  const sinew::Worker worker = sinew::init_rpc(std::move(options));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // It may have been evicted, and have rejoined, since.
    if (!worker_.valid()) worker_ = worker;
  }
  take(worker);
}

void Seat::take(const sinew::Worker& worker) {
  examples::tell_address(worker);
  sinew::MemberWatch watch;
  try {
    watch = watch_members(worker);
    publish_(worker);
  } catch (const sinew::RpcError& error) {
    // Out of the job already: the next place is on its way.
    if (error.code() == sinew::ErrorCode::kAborted) return;
    throw;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  worker_ = worker;
  std::swap(watch_, watch);
}

sinew::MemberWatch Seat::watch_members(const sinew::Worker& worker) {
  return worker.on_member([this](const sinew::MemberEvent& event) {
    using Kind = sinew::MemberEvent::Kind;
    if (event.kind != Kind::kSuspected && event.kind != Kind::kTrusted) {
      std::ostringstream line;
      line << event.worker.name << " " << event.kind;
      tell_(line.str());
    }
    // Whoever waits under the lock has either seen this, or waits already.
    { const std::lock_guard<std::mutex> lock(mutex_); }
    changed_.notify_all();
  });
}

void Seat::leave_last(std::chrono::nanoseconds timeout) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return worker_.workers().size() <= 1; });
  }
  leave();
}

void Seat::leave() {
  sinew::Worker worker;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    worker = worker_;
  }
  sinew::ShutdownOptions at_once;
  at_once.graceful = false;
  worker.shutdown(at_once);
}

}  // namespace actor_learner
