#include "sinew/rpc/worker/stop_signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

int make_event() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return event;
}

void raise_event(int event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(event, &one, sizeof one);
}

// What the handler writes to; read by nobody while there is a StopSignals, so that all see it.
// Never closed.
volatile std::sig_atomic_t signal_event = -1;

// It runs on any thread, in the middle of anything.
void on_signal(int) {
  const int error = errno;
  raise_event(signal_event);
  errno = error;
}

/// The handlers, for as long as somebody waits and none has come.
class Handlers {
 public:
  void add() {
    MutexLock lock(mutex_);
    if (count_++ > 0) return;
    // If it throws, the count stands: remove() comes in any case.
    if (signal_event < 0) signal_event = make_event();
    std::uint64_t old = 0;
    [[maybe_unused]] const auto got = read(signal_event, &old, sizeof old);
    for (const int signal : kSignals) {
      struct sigaction current = {};
      sigaction(signal, nullptr, &current);
      const bool is_default = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_DFL;
      if (is_default) set(signal, &on_signal);
    }
  }
  void remove() {
    MutexLock lock(mutex_);
    if (--count_ == 0) restore_locked();
  }
  /// One has come: the next one is the system's.
  void restore() {
    MutexLock lock(mutex_);
    restore_locked();
  }

 private:
  static void set(int signal, void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  void restore_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const int signal : kSignals) {
      struct sigaction current = {};
      sigaction(signal, nullptr, &current);
      // The program may have set its own meanwhile.
      if (current.sa_handler == &on_signal) set(signal, SIG_DFL);
    }
  }

  Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

Handlers& handlers() {
  static auto& handlers = *new Handlers();
  return handlers;
}

}  // namespace

StopSignals::StopSignals(std::function<void()> on_stop)
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

StopSignals::~StopSignals() {
  raise_event(ends_);
  thread_.join();
  handlers().remove();
  close(ends_);
}

void StopSignals::watch() {
  pthread_setname_np(pthread_self(), "sinew-stop");
  pollfd events[] = {{signal_event, POLLIN, 0}, {ends_, POLLIN, 0}};
  while (poll(events, 2, -1) < 0 && errno == EINTR) {
  }
  if ((events[0].revents & POLLIN) == 0) return;
  handlers().restore();
  on_stop_();
}

}  // namespace sinew::internal
