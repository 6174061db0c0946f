#include "common/stop_signal.h"

#include <semaphore.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <system_error>

namespace examples {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<bool> was_requested{false};

// All that a handler may do is to wake somebody. It runs on any thread: libraries have some before
// main() begins.
sem_t wakes;
void on_signal(int) { sem_post(&wakes); }

void handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // The next one does what it does by default.
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignal::StopSignal() {
  sem_init(&wakes, 0, 0);
  handle(&on_signal);
  thread_ = std::thread([this] { watch(); });
}

// The handler stays: a signal that comes from here on is too late to change how the process ends.
StopSignal::~StopSignal() {
  is_over_ = true;
  sem_post(&wakes);
  thread_.join();
}

bool StopSignal::requested() { return was_requested; }

void StopSignal::then(std::function<void()> on_stop) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    on_stop_ = on_stop;
    if (!was_requested) return;
  }
  if (on_stop) on_stop();
}

void StopSignal::watch() {
  while (sem_wait(&wakes) != 0) {
  }
  if (is_over_) return;
  // One of the other kind too.
  handle(SIG_DFL);
  std::function<void()> on_stop;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    was_requested = true;
    on_stop = on_stop_;
  }
  if (!on_stop) std::_Exit(stopped_status());
  on_stop();
}

int stopped_status() {
  const char* const text = std::getenv("SINEW_EXAMPLES_STOPPED_STATUS");
  if (text == nullptr) return 0;
  int status = 0;
  const char* const end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, status);
  if (error == std::errc() && last == end && status >= 0 && status <= 255) return status;
  std::cerr << "SINEW_EXAMPLES_STOPPED_STATUS: '" << text << "' is no number from 0 to 255"
            << std::endl;
  return 2;
}

}  // namespace examples
