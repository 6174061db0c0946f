#include "sinew/rpc/base/flight_recorder.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/log.h"

namespace sinew::internal {
namespace {

namespace fs = std::filesystem;

constexpr int kFaults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};

// "PATH.PID.txt"; empty: none is wanted. Written once, before any fault.
char file_path[512] = "";
struct sigaction previous[NSIG];
std::atomic<bool> is_dying{false};

std::string said_path() { return process_environment()("SINEW_FLIGHT_RECORD").value_or(""); }

std::int64_t wall_clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

std::uint64_t this_thread() {
  thread_local const auto thread = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  return thread;
}

/// What may be used in a signal's handler is little.
class Line {
 public:
  void text(const char* text) {
    for (; *text != '\0' && length_ < sizeof(bytes_); ++text) {
      const auto byte = static_cast<unsigned char>(*text);
      bytes_[length_++] = byte < 0x20 || byte == 0x7f ? ' ' : *text;
    }
  }
  void number(std::uint64_t number, int digits = 1) {
    char reversed[24];
    int count = 0;
    for (; number > 0 || count < digits; number /= 10)
      reversed[count++] = static_cast<char>('0' + number % 10);
    while (count > 0 && length_ < sizeof(bytes_)) bytes_[length_++] = reversed[--count];
  }
  void write_to(int file) {
    if (length_ < sizeof(bytes_)) bytes_[length_++] = '\n';
    for (std::size_t done = 0; done < length_;) {
      const ssize_t wrote = ::write(file, bytes_ + done, length_ - done);
      if (wrote < 0 && errno != EINTR) return;
      if (wrote > 0) done += static_cast<std::size_t>(wrote);
    }
    length_ = 0;
  }

 private:
  char bytes_[256];
  std::size_t length_ = 0;
};

void on_fault(int signal, siginfo_t* info, void*) {
  if (!is_dying.exchange(true)) FlightRecorder::of_process().write_file();
  // The signal comes again when this returns, and ends the process as it would have without this:
  // raised by the faulty instruction, whose address a handler may want, or sent.
  sigaction(signal, &previous[signal], nullptr);
  if (info->si_code <= 0) ::raise(signal);
}

}  // namespace

FlightRecorder::FlightRecorder() : has_calls_(!said_path().empty()) {}

// Never destroyed: threads of workers may outlive what is static.
FlightRecorder& FlightRecorder::of_process() {
  static auto& recorder = *new FlightRecorder();
  return recorder;
}

void FlightRecorder::add(const char* kind, std::string_view text, std::uint64_t number) {
  const std::uint64_t event = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[event % kEvents];
  // Another one may have been held up in it for as long as the whole record takes: then this one is
  // dropped, so that none is a mixture.
  std::uint64_t turn = slot.turn.load(std::memory_order_relaxed);
  if (turn % 2 == 1 || turn > 2 * event ||
      !slot.turn.compare_exchange_strong(turn, 2 * event + 1, std::memory_order_relaxed)) {
    return;
  }
  // Who sees any of these sees that it is being written.
  slot.time_ns.store(wall_clock_ns(), std::memory_order_release);
  slot.thread.store(this_thread(), std::memory_order_release);
  slot.kind.store(kind, std::memory_order_release);
  slot.number.store(number, std::memory_order_release);
  char bytes[kTextBytes] = {};
  std::memcpy(bytes, text.data(), std::min(text.size(), kTextBytes));
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    slot.text[i].store(word, std::memory_order_release);
  }
  slot.turn.store(2 * event + 2, std::memory_order_release);
}

bool FlightRecorder::read(std::uint64_t event, Copy& copy) const {
  const Slot& slot = slots_[event % kEvents];
  if (slot.turn.load(std::memory_order_acquire) != 2 * event + 2) return false;
  copy.time_ns = slot.time_ns.load(std::memory_order_acquire);
  copy.thread = slot.thread.load(std::memory_order_acquire);
  copy.kind = slot.kind.load(std::memory_order_acquire);
  copy.number = slot.number.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t word = slot.text[i].load(std::memory_order_acquire);
    std::memcpy(copy.text + i * sizeof word, &word, sizeof word);
  }
  copy.text[kTextBytes] = '\0';
  return slot.turn.load(std::memory_order_relaxed) == 2 * event + 2;
}

std::vector<FlightRecorder::Event> FlightRecorder::events(std::size_t most) const {
  std::vector<Event> events;
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  const std::uint64_t count = std::min<std::uint64_t>({end, most, kEvents});
  Copy copy{};
  for (std::uint64_t event = end - count; event < end; ++event) {
    if (read(event, copy))
      events.push_back({copy.time_ns, copy.thread, copy.kind, copy.text, copy.number});
  }
  return events;
}

void FlightRecorder::watch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string path = said_path();
    if (path.empty()) return;
    const std::string own = absl::StrCat(path, ".", ::getpid(), ".txt");
    const fs::path folder = fs::absolute(own).parent_path();
    if (own.size() >= sizeof file_path || ::access(folder.c_str(), W_OK) != 0) {
      return log_line("", absl::StrCat("SINEW_FLIGHT_RECORD is \"", path,
                                       "\": no file can be written there, so none will be"));
    }
    own.copy(file_path, own.size());
    of_process();
    for (const int signal : kFaults) {
      struct sigaction action = {};
      action.sa_sigaction = &on_fault;
      // A stack that has overflowed has no room; where the thread has another one, that is used.
      action.sa_flags = SA_ONSTACK | SA_SIGINFO;
      sigaction(signal, &action, &previous[signal]);
    }
  });
}

void FlightRecorder::write_file() const {
  if (file_path[0] == '\0') return;
  const int file = ::open(file_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return;
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  Line line;
  Copy copy;
  for (std::uint64_t event = end - std::min<std::uint64_t>(end, kEvents); event < end; ++event) {
    if (!read(event, copy)) continue;
    line.number(static_cast<std::uint64_t>(copy.time_ns / 1000000000));
    line.text(".");
    line.number(static_cast<std::uint64_t>(copy.time_ns % 1000000000), 9);
    line.text(" ");
    line.number(copy.thread);
    line.text(" ");
    line.text(copy.kind);
    line.text(" ");
    line.text(copy.text);
    line.text(" ");
    line.number(copy.number);
    line.write_to(file);
  }
  ::close(file);
}

}  // namespace sinew::internal
