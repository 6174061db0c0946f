#include "shared/stop_signal.h"

#include <csignal>
#include <initializer_list>
#include <utility>

namespace actor_learner {
namespace {

// Ends the thread.
constexpr int kEnd = SIGUSR1;

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

int next_of(const sigset_t& set) {
  int signal = 0;
  while (sigwait(&set, &signal) != 0) {
  }
  return signal;
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t all = set_of({SIGINT, SIGTERM, kEnd});
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  thread_ = std::thread([this] { watch(); });
}

StopSignal::~StopSignal() {
  pthread_kill(thread_.native_handle(), kEnd);
  thread_.join();
}

void StopSignal::then(std::function<void()> on_stop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_stop_ = std::move(on_stop);
}

void StopSignal::watch() {
  const int signal = next_of(set_of({SIGINT, SIGTERM, kEnd}));
  if (signal == kEnd) return;
  // From here on this thread gets them, and they do what they do by default.
  const sigset_t stops = set_of({SIGINT, SIGTERM});
  pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
  std::function<void()> on_stop;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    on_stop = on_stop_;
  }
  if (!on_stop) raise(signal);
  on_stop();
  next_of(set_of({kEnd}));
}

}  // namespace actor_learner
