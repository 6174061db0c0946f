#include "sinew/rpc/device/stream_work.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/base/rate_limited_log.h"

namespace sinew::internal {
namespace {

// The next user of the device gets the same error from it; a future that is complete cannot report
// it.
void log_failure(const char* what) {
  static auto& log =
      *new RateLimitedLog([](const std::string& text) { log_line(/*worker=*/{}, text); });
  log.add(absl::StrCat("the streams of devices could not be asked for the work of a future: ",
                       describe(std::current_exception()).message, " (", what, ")"));
}

bool is_default(c10::Stream stream) {
  return stream == c10::Stream(c10::Stream::DEFAULT, stream.device());
}

}  // namespace

StreamWork::StreamWork(std::vector<Mark> marks) : marks_(std::move(marks)) {}

std::shared_ptr<const QueuedWork> StreamWork::of_this_thread(QueuedOn which) {
  std::vector<Mark> marks;
  try {
    for (const auto& runtime : device_runtimes()) {
      for (int i = 0; i < runtime->device_count(); ++i) {
        const c10::Device device(runtime->type(), static_cast<c10::DeviceIndex>(i));
        if (!runtime->is_in_use(device)) continue;
        const c10::Stream stream = runtime->current_stream(device);
        if (which == QueuedOn::kSideStreams && is_default(stream)) continue;
        if (runtime->is_capturing(stream)) continue;
        c10::Event event(runtime->type());
        event.record(stream);
        marks.push_back({runtime, stream, std::move(event)});
      }
    }
  } catch (...) {
    log_failure("recording an event");
    return nullptr;
  }
  if (marks.empty()) return nullptr;
  return std::shared_ptr<const QueuedWork>(new StreamWork(std::move(marks)));
}

void StreamWork::precede_this_thread() const {
  try {
    for (const Mark& mark : marks_) {
      const c10::Stream here = mark.runtime->current_stream(mark.stream.device());
      if (here == mark.stream || mark.runtime->is_capturing(here)) continue;
      mark.event.block(here);
    }
  } catch (...) {
    log_failure("waiting for an event");
  }
}

}  // namespace sinew::internal
