#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// Copies what processes write to pipes to this process's output, line by line: each is written as
/// a whole, behind the prefix of its pipe. A line of more than 64 KiB is cut there. What waits for
/// the rest of its line for half a second is shown without, and what a carriage return overwrites
/// is shown before; the line goes on behind it unless another process has written meanwhile.
///
/// Never waits for a reader of the output; while there is none, no more than 1 MiB is read ahead. A
/// reader that is gone is gone for the processes too. Not thread-safe.
class OutputRelay {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  OutputRelay();
  ~OutputRelay();

  struct Route {
    std::string prefix;
    /// A descriptor of this process that outlives this; -1: none.
    int target = -1;
    /// Gets a copy without prefixes, if valid.
    FileDescriptor log;
  };
  /// The end of a new pipe for a process to write to.
  absl::StatusOr<FileDescriptor> open(Route route);

  /// A line of this process's own.
  void say(int target, std::string line);

  /// What to wait for before step().
  std::vector<pollfd> waits() const;
  /// When to call step() though there is nothing to wait for; max(): never.
  TimePoint wake() const;
  /// Reads and writes what can be without waiting.
  void step(TimePoint now);
  /// All writers have ended: what they have left in the pipes is all that there is. Processes that
  /// they have started may go on writing; that is not read.
  void finish(TimePoint now);
  /// Whether something is left to read or to write.
  bool has_output() const { return !sources_.empty() || !lines_.empty(); }

 private:
  struct Source;
  struct Line {
    int target;
    std::string text;
    std::size_t written_bytes = 0;
  };

  /// The line that a place of the output ends with, if its end is missing.
  struct OpenLine {
    const Source* source;
    /// The next text overwrites it.
    bool has_returned;
  };

  void read_all(TimePoint now);
  void read_from(Source& source, TimePoint now);
  void take(Source& source, std::string_view bytes);
  bool is_open(const Source& source) const;
  std::string beginning(const Source& source) const;
  void show_part(Source& source);
  void end_line(Source& source);
  void push(int target, std::string text);
  void write_all();
  void drop_target(int target);

  std::vector<std::unique_ptr<Source>> sources_;
  std::deque<Line> lines_;
  std::map<int, OpenLine> open_lines_;
  std::size_t queued_bytes_ = 0;
};

}  // namespace sinew::internal
