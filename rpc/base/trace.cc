#include "sinew/rpc/base/trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/json_text.h"
#include "sinew/rpc/base/log.h"

namespace sinew {
namespace internal {
namespace {

constexpr char kPath[] = "SINEW_TRACE";
constexpr char kEvery[] = "SINEW_TRACE_EVERY";
// What a process keeps before it writes.
constexpr std::size_t kMostKept = std::size_t{64} << 10;

std::string id_text(Trace::CallId call) {
  return absl::StrFormat("%016x.%016x.%d", call.caller, call.callee, call.number);
}

}  // namespace

Trace::Trace(std::string path, std::uint64_t every)
    : path_(std::move(path)),
      every_(every),
      ahead_(std::chrono::system_clock::now().time_since_epoch() -
             Clock::system().now().time_since_epoch()) {}

Trace* Trace::make() {
  const EnvironmentReader environment = process_environment();
  const std::string path = environment(kPath).value_or("");
  if (path.empty()) return nullptr;
  std::uint64_t every = 1;
  const std::string given = environment(kEvery).value_or("1");
  if (!absl::SimpleAtoi(given, &every) || every == 0) {
    log_line(
        "", absl::StrCat(
                kEvery, " is \"", given,
                "\", and has to be a number from 1 on: each so many-th call is traced. No trace is "
                "written"));
    return nullptr;
  }
  // Also what comes behind the last worker's end.
  std::atexit([] { of_process()->flush(); });
  return new Trace(absl::StrCat(path, ".", ::getpid(), ".json"), every);
}

// Never destroyed: threads of workers may outlive what is static.
Trace* Trace::of_process() {
  static Trace* const trace = make();
  return trace;
}

bool Trace::has(CallId call) const {
  // As good as drawn: both ends come to the same.
  const std::uint64_t mixed = (call.caller ^ call.callee ^ call.number) * 0x9e3779b97f4a7c15ULL;
  return every_ == 1 || (mixed >> 32) % every_ == 0;
}

double Trace::time_us(Clock::TimePoint time) const {
  return static_cast<double>((time.time_since_epoch() + ahead_).count()) * 1e-3;
}

void Trace::part(CallId call, std::string_view name, Clock::TimePoint begin, Clock::TimePoint end) {
  const std::string common =
      absl::StrFormat(R"("cat":"call","id2":{"global":"%s"},"pid":%d,"tid":0,"name":"%s")",
                      id_text(call), ::getpid(), json_text(name));
  add(absl::StrFormat("{\"ph\":\"b\",%s,\"ts\":%.3f},\n{\"ph\":\"e\",%s,\"ts\":%.3f}", common,
                      time_us(begin), common, time_us(end)));
}

void Trace::work(std::string_view name, Clock::TimePoint begin, Clock::TimePoint end) {
  add(absl::StrFormat(
      R"({"ph":"X","cat":"program","pid":%d,"tid":%d,"name":"%s","ts":%.3f,"dur":%.3f})",
      ::getpid(), ::syscall(SYS_gettid), json_text(name), time_us(begin),
      time_us(end) - time_us(begin)));
}

void Trace::note_worker(std::string_view name) {
  add(absl::StrFormat(R"({"ph":"M","name":"process_name","pid":%d,"args":{"name":"%s"}})",
                      ::getpid(), json_text(name)));
}

void Trace::add(std::string event) {
  MutexLock lock(mutex_);
  // The format lets the list be open at its end: that of a process that was killed can be read.
  absl::StrAppend(&kept_, is_begun_ ? ",\n" : "[\n", event);
  is_begun_ = true;
  if (kept_.size() >= kMostKept) flush_locked();
}

void Trace::flush() {
  MutexLock lock(mutex_);
  flush_locked();
}

void Trace::flush_locked() {
  if (kept_.empty()) return;
  std::FILE* const file = std::fopen(path_.c_str(), "ae");
  const bool is_written =
      file != nullptr && std::fwrite(kept_.data(), 1, kept_.size(), file) == kept_.size();
  const int error = errno;
  if (file != nullptr) std::fclose(file);
  kept_.clear();
  if (!is_written)
    log_line("", absl::StrCat("cannot write the trace ", path_, ": ", std::strerror(error)));
}

}  // namespace internal

TraceSpan::TraceSpan(std::string_view name) {
  if (internal::Trace::of_process() == nullptr) return;
  name_ = name;
  begun_ = internal::Clock::system().now();
}

TraceSpan::~TraceSpan() {
  internal::Trace* const trace = internal::Trace::of_process();
  if (trace != nullptr) trace->work(name_, begun_, internal::Clock::system().now());
}

}  // namespace sinew
