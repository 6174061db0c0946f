#include "sinew/rref/internal/team_arrivals.h"

#include "sinew/rpc/base/error.h"

namespace sinew::internal {

bool is_loss(const std::exception_ptr& error) {
  if (error == nullptr) return false;
  try {
    std::rethrow_exception(error);
  } catch (const RpcError& rpc) {
    return rpc.code() == ErrorCode::kUnavailable && rpc.origin() == ErrorOrigin::kNetwork;
  } catch (...) {
    return false;
  }
}

void TeamArrivals::add(std::size_t which) {
  std::optional<Promise<std::size_t>> waiting;
  {
    MutexLock lock(mutex_);
    waiting.swap(waiting_);
    if (!waiting) arrived_.push_back(which);
  }
  if (waiting) waiting->set_value(which);
}

Future<std::size_t> TeamArrivals::take() {
  MutexLock lock(mutex_);
  if (!arrived_.empty()) {
    const std::size_t which = arrived_.front();
    arrived_.pop_front();
    return make_ready_future(which);
  }
  if (!waiting_) waiting_.emplace();
  return waiting_->future();
}

bool TeamArrivals::give_up(const Future<std::size_t>& taken) {
  {
    MutexLock lock(mutex_);
    if (waiting_) {
      waiting_.reset();
      return false;
    }
  }
  taken.wait();
  return true;
}

}  // namespace sinew::internal
