#include "common/stop_signal.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <system_error>

namespace examples {
namespace {

// From the first one on to the end of the process: a signal that comes when the program is done is
// too late to change how it ends.
void keep_handlers() {
  [[maybe_unused]] static const auto& handlers = *new sinew::StopSignal([] {});
}

}  // namespace

StopSignal::StopSignal() : signal_([this] { on_signal(); }) { keep_handlers(); }

void StopSignal::then(std::function<void()> on_stop) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    on_stop_ = on_stop;
    if (!has_come_) return;
  }
  if (on_stop) on_stop();
}

void StopSignal::on_signal() {
  std::function<void()> on_stop;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_come_ = true;
    on_stop = on_stop_;
  }
  if (!on_stop) std::_Exit(stopped_status());
  on_stop();
}

bool is_end_of_others(const sinew::RpcError& error) {
  return error.code() == sinew::ErrorCode::kUnavailable ||
         error.code() == sinew::ErrorCode::kCancelled || error.code() == sinew::ErrorCode::kAborted;
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
