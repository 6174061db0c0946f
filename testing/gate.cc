#include "sinew/testing/gate.h"

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/testing/eventually.h"

namespace sinew::testing {

struct Gate::State {
  mutable internal::Mutex mutex;
  internal::CondVar changed;
  int arrivals ABSL_GUARDED_BY(mutex) = 0;
  bool open ABSL_GUARDED_BY(mutex) = false;
};

Gate::Gate() : state_(std::make_unique<State>()) {}
Gate::~Gate() = default;

void Gate::pass() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  internal::MutexLock lock(state_->mutex);
  ++state_->arrivals;
  state_->changed.notify_all();
  while (!state_->open && std::chrono::steady_clock::now() < end) {
    state_->changed.wait_until(state_->mutex, end);
  }
}

bool Gate::wait_for_arrivals(int count) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  internal::MutexLock lock(state_->mutex);
  while (state_->arrivals < count && std::chrono::steady_clock::now() < end) {
    state_->changed.wait_until(state_->mutex, end);
  }
  return state_->arrivals >= count;
}

void Gate::open() {
  internal::MutexLock lock(state_->mutex);
  state_->open = true;
  state_->changed.notify_all();
}

void Gate::close() {
  internal::MutexLock lock(state_->mutex);
  state_->open = false;
  state_->arrivals = 0;
}

int Gate::arrivals() const {
  internal::MutexLock lock(state_->mutex);
  return state_->arrivals;
}

}  // namespace sinew::testing
