#include "sinew/optim/internal/mirror.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref/remote.h"

namespace sinew::internal {
namespace {

// Changes that a standby which is catching up may be behind by, before steps wait for it.
constexpr std::uint64_t kMostBehind = 64;

RpcError superseded() {
  return RpcError(ErrorCode::kAborted,
                  "the standby of this owner has taken over: use the optimizer that "
                  "sinew::optim::take_over() has returned");
}

}  // namespace

Mirror::Mirror(Worker worker, RRef<LocalOptimizer> standby, std::uint64_t stream)
    : worker_(std::move(worker)),
      standby_(std::move(standby)),
      stream_(stream),
      last_(make_ready_future()) {}

template <class Call>
Future<FollowOutcome> Mirror::start(const CallOptions& options, const Call& call) const {
  // It belongs to no call: neither the end of a trainer's time nor its autograd context is its own.
  const ThreadContext::Scope outside(nullptr);
  try {
    return call(standby_.with(options));
  } catch (...) {
    return make_failed_future<FollowOutcome>(std::current_exception());
  }
}

template <class Call>
void Mirror::send_change(const Call& call) {
  CallOptions options;
  ChangeId id;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kCatchingUp && phase_ != Phase::kInSync) return;
    // The snapshot before it takes as long as it takes, which is begin()'s to bound.
    if (phase_ == Phase::kCatchingUp) options.timeout = kNoTimeout;
    id = {stream_, sent_++};
  }
  Future<void> settled = start(options, [&](const RRef<LocalOptimizer>& standby) {
                           return call(standby, id);
                         }).then([self = shared_from_this()](Future<FollowOutcome> done) {
    return self->settle(done);
  });
  MutexLock lock(mutex_);
  last_ = std::move(settled);
}

std::vector<RRef<optim::Options>> Mirror::copies(const std::vector<optim::Options>& options) const {
  std::vector<RRef<optim::Options>> there;
  for (const optim::Options& one : options) there.push_back(one.model().copy_to(standby_.peer()));
  return there;
}

Future<void> Mirror::begin(OwnerSnapshot snapshot, const std::vector<optim::Options>& options,
                           std::chrono::nanoseconds timeout) {
  {
    MutexLock lock(mutex_);
    ++sent_;
  }
  CallOptions call;
  call.timeout = timeout;
  return start(call,
               [&](const RRef<LocalOptimizer>& standby) {
                 snapshot.options = copies(options);
                 return standby.async<&LocalOptimizer::follow_snapshot>(ChangeId{stream_, 0},
                                                                        snapshot);
               })
      .then([self = shared_from_this()](Future<FollowOutcome> done) {
        return self->settle(done).then([self, done] {
          done.wait();
          {
            MutexLock lock(self->mutex_);
            if (self->phase_ == Phase::kCatchingUp) self->phase_ = Phase::kInSync;
          }
          // What was acknowledged meanwhile is to be there, too.
          return self->acknowledged().then([self] {
            if (self->is_followed()) return;
            throw RpcError(ErrorCode::kAborted,
                           absl::StrFormat("the standby '%s' has missed a change while it was "
                                           "catching up, and was given up: add it once more",
                                           self->standby_.owner().name));
          });
        });
      });
}

void Mirror::send(OwnerSnapshot snapshot, const std::vector<optim::Options>& options) {
  send_change([&](const RRef<LocalOptimizer>& standby, const ChangeId& id) {
    snapshot.options = copies(options);
    return standby.async<&LocalOptimizer::follow_snapshot>(id, snapshot);
  });
}

void Mirror::send(const MirroredStep& step) {
  send_change([&](const RRef<LocalOptimizer>& standby, const ChangeId& id) {
    return standby.async<&LocalOptimizer::follow_step>(id, step);
  });
}

void Mirror::send(std::size_t group, const optim::Options& options) {
  send_change([&](const RRef<LocalOptimizer>& standby, const ChangeId& id) {
    return standby.async<&LocalOptimizer::follow_options>(id, static_cast<std::uint64_t>(group),
                                                          copies({options}).front());
  });
}

Future<void> Mirror::settle(const Future<FollowOutcome>& done) {
  if (const std::exception_ptr error = done.error()) return give_up(error);
  if (done.value() == FollowOutcome::kTookOver) {
    end(FollowOutcome::kTookOver);
    throw superseded();
  }
  MutexLock lock(mutex_);
  ++answered_;
  return make_ready_future();
}

Future<void> Mirror::give_up(const std::exception_ptr& why) {
  if (is_followed()) {
    WorkerAccess::services(worker_)->log(
        absl::StrFormat("the standby '%s' of this worker's parameters is none any more: %s",
                        standby_.owner().name, describe(why).message));
  }
  return dismiss();
}

// One that has failed, or has not answered in time, may be there still and take over without what
// the owner acknowledges from now on. So nothing is acknowledged before it has been told, or is
// lost. It is neither when this worker itself is at its end.
Future<void> Mirror::dismiss() {
  Promise<void> left;
  {
    MutexLock lock(mutex_);
    if (phase_ == Phase::kSuperseded) {
      return make_failed_future<void>(std::make_exception_ptr(superseded()));
    }
    if (left_.valid()) return left_;
    phase_ = Phase::kLeaving;
    left_ = left.future();
  }
  const Future<void> told = left.future();
  start({}, [&](const RRef<LocalOptimizer>& standby) {
    return standby.async<&LocalOptimizer::dismiss>(stream_);
  }).on_done([self = shared_from_this(), left](const Future<FollowOutcome>& done) {
    if (done.error() == nullptr) {
      self->end(done.value());
      if (done.value() == FollowOutcome::kFollowed) return left.set_value();
      return left.set_error(std::make_exception_ptr(superseded()));
    }
    if (WorkerAccess::services(self->worker_)->is_lost(self->standby_.owner())) {
      self->end(FollowOutcome::kFollowed);
      return left.set_value();
    }
    {
      // The next one who waits tries again.
      MutexLock lock(self->mutex_);
      self->left_ = {};
    }
    left.set_error(done.error());
  });
  return told;
}

void Mirror::end(FollowOutcome outcome) {
  MutexLock lock(mutex_);
  if (phase_ == Phase::kSuperseded) return;
  phase_ = outcome == FollowOutcome::kTookOver ? Phase::kSuperseded : Phase::kGone;
}

Future<void> Mirror::acknowledged() {
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kLeaving) return acknowledged_locked();
  }
  return dismiss();
}

Future<void> Mirror::acknowledged_locked() const {
  switch (phase_) {
    case Phase::kSuperseded:
      return make_failed_future<void>(std::make_exception_ptr(superseded()));
    case Phase::kGone:
      return make_ready_future();
    case Phase::kCatchingUp:
      if (sent_ - answered_ <= kMostBehind) return make_ready_future();
      return last_;
    case Phase::kLeaving:
    case Phase::kInSync:
      return last_;
  }
  return last_;
}

bool Mirror::is_superseded() const {
  MutexLock lock(mutex_);
  return phase_ == Phase::kSuperseded;
}

bool Mirror::is_followed() const {
  MutexLock lock(mutex_);
  return phase_ == Phase::kCatchingUp || phase_ == Phase::kInSync;
}

}  // namespace sinew::internal
