#include "sinew/rpc/base/stop_signal.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/internal/stop_rule.h"

namespace sinew {
namespace {

using StopClock = std::chrono::steady_clock;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

int make_event() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return event;
}

void raise_event(int event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(event, &one, sizeof one);
}

// What the handler writes to. Never read, so that all waiters see it. Never closed.
volatile std::sig_atomic_t signal_event = -1;
// When the process was asked to end; 0: it was not.
std::atomic<StopClock::rep> asked_at{0};
static_assert(std::atomic<StopClock::rep>::is_always_lock_free);

/// 0: no request before; otherwise the time of the first one.
StopClock::rep ask_at(StopClock::time_point now) {
  StopClock::rep first = 0;
  if (asked_at.compare_exchange_strong(first, now.time_since_epoch().count())) {
    raise_event(signal_event);
  }
  return first;
}

// It runs on any thread, in the middle of anything.
void on_signal(int signal) {
  const int error = errno;
  const StopClock::time_point now = StopClock::now();
  const StopClock::rep first = ask_at(now);
  if (first != 0 &&
      !internal::is_same_stop(StopClock::time_point(StopClock::duration(first)), now)) {
    // It comes when this returns.
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  errno = error;
}

/// The handlers: for as long as a thread waits and no signal has arrived. Afterwards they stay, for
/// further signals.
class Handlers {
 public:
  void add() {
    internal::MutexLock lock(mutex_);
    if (count_++ > 0) return;
    // If it throws, the count stands: remove() comes in any case.
    if (signal_event < 0) signal_event = make_event();
    for (const int signal : kSignals) replace(signal, SIG_DFL, &on_signal);
  }
  void remove() {
    internal::MutexLock lock(mutex_);
    if (--count_ > 0 || StopSignal::requested()) return;
    for (const int signal : kSignals) replace(signal, &on_signal, SIG_DFL);
  }
  bool ask() {
    internal::MutexLock lock(mutex_);
    if (count_ == 0) return false;
    ask_at(StopClock::now());
    return true;
  }

 private:
  using Handler = void (*)(int);

  /// Unless the program has set its own.
  static void replace(int signal, Handler from, Handler to) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != from) return;
    action = {};
    action.sa_handler = to;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }

  internal::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

Handlers& handlers() {
  static auto& handlers = *new Handlers();
  return handlers;
}

}  // namespace

StopSignal::StopSignal(std::function<void()> on_stop)
    : on_stop_(std::move(on_stop)), ends_(make_event()) {
  try {
    handlers().add();
    thread_ = std::thread([this] { watch(); });
  } catch (...) {
    handlers().remove();
    close(ends_);
    throw;
  }
}

StopSignal::~StopSignal() {
  raise_event(ends_);
  thread_.join();
  handlers().remove();
  close(ends_);
}

bool StopSignal::requested() { return asked_at != 0; }

bool StopSignal::request() { return handlers().ask(); }

void StopSignal::watch() {
  pthread_setname_np(pthread_self(), "sinew-stop");
  pollfd events[] = {{signal_event, POLLIN, 0}, {ends_, POLLIN, 0}};
  while (poll(events, 2, -1) < 0 && errno == EINTR) {
  }
  if ((events[0].revents & POLLIN) != 0) on_stop_();
}

}  // namespace sinew
