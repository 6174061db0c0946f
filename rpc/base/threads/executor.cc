// What users of an Executor call; how its threads work is in executor_impl.cc.

#include "sinew/rpc/base/threads/executor.h"

#include <utility>

#include "sinew/rpc/base/threads/executor_impl.h"

namespace sinew::internal {

Executor::Executor(Options options)
    : impl_(std::make_shared<Impl>(this, std::move(options))), runner_(impl_) {
  try {
    impl_->start_minimum();
  } catch (...) {
    shutdown();
    throw;
  }
}

Executor::~Executor() {
  if (impl_->is_orphan()) {
    // Its end would look for its threads.
    static_cast<void>(new std::shared_ptr<Impl>(impl_));
  } else {
    shutdown();
  }
}

bool Executor::post(Task task) { return impl_->post(std::move(task)); }

bool Executor::post_all(std::vector<Task> tasks) { return impl_->post_all(std::move(tasks)); }

const std::shared_ptr<TaskRunner>& Executor::runner() const { return runner_; }

void Executor::shutdown() { impl_->shutdown(); }

Executor::Stats Executor::stats() const { return impl_->stats(); }

bool Executor::is_stalled() const { return impl_->is_stalled(); }

Executor* Executor::current() {
  const Impl::Worker* worker = Impl::this_worker;
  return worker == nullptr ? nullptr : worker->pool->owner();
}

bool Executor::flush_later(const std::shared_ptr<Flushable>& what) {
  Impl::Worker* worker = Impl::this_worker;
  return worker != nullptr && worker->pool->flush_later(*worker, what);
}

void Executor::set_polling_duty(std::shared_ptr<PollingDuty> duty) {
  impl_->set_polling_duty(std::move(duty));
}

Executor::DetachedScope::DetachedScope() : worker_(std::exchange(Impl::this_worker, nullptr)) {}

Executor::DetachedScope::~DetachedScope() {
  Impl::this_worker = static_cast<Impl::Worker*>(worker_);
}

Executor::Helper::Helper(Waits* waits) : state_(std::make_unique<State>()) {
  for (Engagement& engagement : state_->engagements) engagement.worker->waits = waits;
}

Executor::Helper::~Helper() = default;

Executor::Helper::Offer::Offer(Helper* helper) {
  Impl::this_helper = helper == nullptr ? nullptr : helper->state_.get();
}

Executor::Helper::Offer::~Offer() { Impl::this_helper = nullptr; }

bool Executor::Helper::has_tasks() const { return state_->engaged > 0; }

Executor::Helper::Workload Executor::Helper::workload() const {
  Workload all;
  for (std::size_t i = 0; i < state_->engaged; ++i) {
    const Workload one = state_->engagements.at(i).pool->workload();
    all.duration += one.duration;
    all.is_brisk = all.is_brisk && one.is_brisk;
  }
  return all;
}

void Executor::Helper::run() {
  for (std::size_t i = 0; i < state_->engaged; ++i) {
    Engagement& engagement = state_->engagements.at(i);
    engagement.pool->run_engaged(engagement);
    engagement.pool.reset();
  }
  state_->engaged = 0;
}

Executor::BlockingScope::BlockingScope(const std::function<std::string()>& describe_caller) {
  Impl::Worker* worker = Impl::this_worker;
  if (worker == nullptr) return;
  if (worker->blocking_scopes == 0) {
    // What it waits for may depend on what it has put off.
    worker->more_follow = false;
    Impl::flush(*worker);
    worker->pool->enter_blocking(describe_caller);
    if (worker->waits != nullptr) worker->waits->begin_task_wait();
  }
  ++worker->blocking_scopes;
}

Executor::BlockingScope::~BlockingScope() {
  Impl::Worker* worker = Impl::this_worker;
  if (worker == nullptr) return;
  if (--worker->blocking_scopes > 0) return;
  worker->pool->leave_blocking();
  if (worker->waits != nullptr) worker->waits->end_task_wait();
}

}  // namespace sinew::internal
