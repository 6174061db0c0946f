#include "sinew/launch/internal/output_relay.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/log.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kLongestLineBytes = std::size_t{64} << 10;
constexpr std::size_t kMostQueuedBytes = std::size_t{1} << 20;
// Who writes a line in pieces is faster; who shows progress, or asks for something, waits here.
constexpr auto kPatience = std::chrono::milliseconds(500);

/// Two descriptors may be one terminal or file, where the lines of both stand: the lower one.
int place_of(int target) {
  struct stat ours {};
  struct stat others {};
  for (int other = STDOUT_FILENO; other < target; ++other) {
    const bool is_same = ::fstat(other, &others) == 0 && ::fstat(target, &ours) == 0 &&
                         ours.st_dev == others.st_dev && ours.st_ino == others.st_ino;
    if (is_same) return other;
  }
  return target;
}

bool can_write(int descriptor) {
  pollfd wait{descriptor, POLLOUT, 0};
  return ::poll(&wait, 1, 0) > 0;
}

void write_log(OutputRelay::Route& route, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(route.log.number(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const std::string reason = std::error_code(errno, std::generic_category()).message();
      log_line("", absl::StrCat(route.prefix, "its log cannot be written any more: ", reason));
      route.log = FileDescriptor();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
}

}  // namespace

struct OutputRelay::Source {
  FileDescriptor pipe;
  Route route;
  int place = -1;
  // A part of a line, whose end has not come.
  std::string line;
  TimePoint grown;
  bool is_open = true;
  // After finish(): what can be left of the writer.
  std::size_t most_left_bytes = std::numeric_limits<std::size_t>::max();
};

OutputRelay::OutputRelay() = default;
OutputRelay::~OutputRelay() = default;

absl::StatusOr<FileDescriptor> OutputRelay::open(Route route) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  auto source = std::make_unique<Source>();
  source->pipe = FileDescriptor(ends[0]);
  // Of this end alone: the process that writes is to wait.
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  source->route = std::move(route);
  source->place = place_of(source->route.target);
  sources_.push_back(std::move(source));
  return FileDescriptor(ends[1]);
}

std::vector<pollfd> OutputRelay::waits() const {
  std::vector<pollfd> result;
  if (queued_bytes_ < kMostQueuedBytes) {
    for (const auto& source : sources_) result.push_back({source->pipe.number(), POLLIN, 0});
  }
  if (!lines_.empty()) result.push_back({lines_.front().target, POLLOUT, 0});
  return result;
}

OutputRelay::TimePoint OutputRelay::wake() const {
  TimePoint result = TimePoint::max();
  if (queued_bytes_ >= kMostQueuedBytes) return result;
  for (const auto& source : sources_) {
    if (!source->line.empty()) result = std::min(result, source->grown + kPatience);
  }
  return result;
}

void OutputRelay::step(TimePoint now) {
  read_all(now);
  write_all();
}

void OutputRelay::say(int target, std::string line) {
  const bool is_amid = open_lines_.erase(place_of(target)) > 0;
  push(target, absl::StrCat(is_amid ? "\n" : "", line, "\n"));
}

void OutputRelay::finish(TimePoint now) {
  for (const auto& source : sources_) {
    const int room = ::fcntl(source->pipe.number(), F_GETPIPE_SZ);
    source->most_left_bytes = room > 0 ? static_cast<std::size_t>(room) : 0;
  }
  step(now);
}

void OutputRelay::read_all(TimePoint now) {
  for (const auto& source : sources_) {
    read_from(*source, now);
    if (!source->line.empty() && now - source->grown >= kPatience) show_part(*source);
  }
  sources_.erase(std::remove_if(sources_.begin(), sources_.end(),
                                [](const auto& source) { return !source->is_open; }),
                 sources_.end());
}

void OutputRelay::read_from(Source& source, TimePoint now) {
  char bytes[16384];
  while (source.is_open && queued_bytes_ < kMostQueuedBytes) {
    const ssize_t size =
        ::read(source.pipe.number(), bytes, std::min(sizeof bytes, source.most_left_bytes));
    if (size < 0 && errno == EINTR) continue;
    const bool is_finishing = source.most_left_bytes != std::numeric_limits<std::size_t>::max();
    if (size > 0) {
      take(source, std::string_view(bytes, static_cast<std::size_t>(size)));
      source.grown = now;
      if (is_finishing) source.most_left_bytes -= static_cast<std::size_t>(size);
    } else if (size < 0 && errno == EAGAIN && !is_finishing) {
      return;
    } else {
      source.is_open = false;
      if (!source.line.empty() || is_open(source)) end_line(source);
    }
  }
}

void OutputRelay::take(Source& source, std::string_view bytes) {
  if (source.route.log.valid()) write_log(source.route, bytes);
  if (source.route.target < 0) return;
  while (!bytes.empty()) {
    if (bytes.front() == '\n') {
      bytes.remove_prefix(1);
      end_line(source);
      continue;
    }
    if (!source.line.empty() && source.line.back() == '\r') show_part(source);
    if (source.line.size() == kLongestLineBytes) end_line(source);
    const std::size_t room = kLongestLineBytes - source.line.size();
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size() - 1);
    const std::size_t taken = std::min(bytes[end] == '\n' ? end : end + 1, room);
    source.line.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
  }
}

bool OutputRelay::is_open(const Source& source) const {
  const auto open = open_lines_.find(source.place);
  return open != open_lines_.end() && open->second.source == &source;
}

/// What stands in front of the text that comes next.
std::string OutputRelay::beginning(const Source& source) const {
  const auto open = open_lines_.find(source.place);
  if (open == open_lines_.end()) return source.route.prefix;
  if (open->second.source != &source) return absl::StrCat("\n", source.route.prefix);
  return open->second.has_returned && !source.line.empty() ? source.route.prefix : "";
}

void OutputRelay::show_part(Source& source) {
  const bool returns = source.line.back() == '\r';
  // There is nothing yet to overwrite.
  const bool is_empty = source.line.size() == 1 && returns && !is_open(source);
  if (!is_empty) {
    push(source.route.target, absl::StrCat(beginning(source), source.line));
    open_lines_[source.place] = {&source, returns};
  }
  source.line.clear();
}

void OutputRelay::end_line(Source& source) {
  push(source.route.target, absl::StrCat(beginning(source), source.line, "\n"));
  open_lines_.erase(source.place);
  source.line.clear();
}

void OutputRelay::push(int target, std::string text) {
  queued_bytes_ += text.size();
  lines_.push_back({target, std::move(text)});
}

void OutputRelay::write_all() {
  while (!lines_.empty()) {
    Line& line = lines_.front();
    if (!can_write(line.target)) break;
    // A pipe that can be written to takes this much without waiting.
    const std::size_t size = std::min<std::size_t>(line.text.size() - line.written_bytes, PIPE_BUF);
    const ssize_t written = ::write(line.target, line.text.data() + line.written_bytes, size);
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (written < 0) {
      drop_target(line.target);
      continue;
    }
    line.written_bytes += static_cast<std::size_t>(written);
    if (line.written_bytes < line.text.size()) continue;
    queued_bytes_ -= line.text.size();
    lines_.pop_front();
  }
}

void OutputRelay::drop_target(int target) {
  lines_.erase(std::remove_if(lines_.begin(), lines_.end(),
                              [&](const Line& line) { return line.target == target; }),
               lines_.end());
  queued_bytes_ = 0;
  for (const Line& line : lines_) queued_bytes_ += line.text.size();
  open_lines_.erase(place_of(target));
  for (auto& source : sources_) {
    if (source->route.target != target) continue;
    source->route.target = -1;
    source->line.clear();
  }
  // Output without a reader and without a file is dropped: the writers get the error that the
  // output itself would give them.
  sources_.erase(std::remove_if(sources_.begin(), sources_.end(),
                                [](const auto& source) {
                                  return source->route.target < 0 && !source->route.log.valid();
                                }),
                 sources_.end());
}

}  // namespace sinew::internal
