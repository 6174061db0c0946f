#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::internal {

/// What the workers of this process did last: links, members, lines of the log; calls if wanted.
/// Kept in memory, read by operators (docs/operate.md), and written to a file when the process dies
/// by a fault, or a worker is evicted, if SINEW_FLIGHT_RECORD says where. Thread-safe; add() takes
/// no lock.
class FlightRecorder {
 public:
  static constexpr std::size_t kEvents = std::size_t{1} << 14;
  /// Of an event's text; what is longer is cut.
  static constexpr std::size_t kTextBytes = 72;

  static FlightRecorder& of_process();

  /// For each call, if SINEW_FLIGHT_RECORD is set: events of all calls cost a busy worker a tenth.
  void add_call(const char* kind, std::string_view text, std::uint64_t number) {
    if (has_calls_) add(kind, text, number);
  }
  /// `kind`: "call begun", say; lives as long as the process. `text` and `number`: which one.
  void add(const char* kind, std::string_view text, std::uint64_t number = 0);

  struct Event {
    /// Of the wall clock, since 1970.
    std::int64_t time_ns = 0;
    std::uint64_t thread = 0;
    const char* kind = "";
    std::string text;
    std::uint64_t number = 0;
  };
  /// The latest ones, oldest first. Those that are being written meanwhile are left out.
  std::vector<Event> events(std::size_t most = kEvents) const;

  /// Sees to that a fault of the process (SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE) leaves a file,
  /// if SINEW_FLIGHT_RECORD says where. What handled such a signal before still does. Idempotent.
  static void watch_faults();
  /// Writes that file, if it is wanted. Async-signal-safe.
  void write_file() const;

 private:
  static constexpr std::size_t kWords = kTextBytes / sizeof(std::uint64_t);

  /// Of atomics, since one may be read while it is written over: it counts only if `turn` is the
  /// same before and after.
  struct Slot {
    /// 0: none yet; odd: being written; 2n + 2: the n-th event of all.
    std::atomic<std::uint64_t> turn{0};
    std::atomic<std::int64_t> time_ns{0};
    std::atomic<std::uint64_t> thread{0};
    std::atomic<const char*> kind{nullptr};
    std::atomic<std::uint64_t> number{0};
    std::array<std::atomic<std::uint64_t>, kWords> text{};
  };

  struct Copy {
    std::int64_t time_ns;
    std::uint64_t thread;
    const char* kind;
    std::uint64_t number;
    char text[kTextBytes + 1];
  };

  FlightRecorder();
  /// False: it is not there any more, or not whole.
  bool read(std::uint64_t event, Copy& copy) const;

  const bool has_calls_;
  std::atomic<std::uint64_t> next_{0};
  std::array<Slot, kEvents> slots_{};
};

}  // namespace sinew::internal
