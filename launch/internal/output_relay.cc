#include "sinew/launch/internal/output_relay.h"

#include <fcntl.h>
#include <limits.h>
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
  // The beginning of a line whose end has not come.
  std::string line;
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

void OutputRelay::step() {
  read_all();
  write_all();
}

void OutputRelay::say(int target, std::string line) { push(target, absl::StrCat(line, "\n")); }

void OutputRelay::finish() {
  for (const auto& source : sources_) {
    const int room = ::fcntl(source->pipe.number(), F_GETPIPE_SZ);
    source->most_left_bytes = room > 0 ? static_cast<std::size_t>(room) : 0;
  }
  step();
}

void OutputRelay::read_all() {
  for (const auto& source : sources_) read_from(*source);
  sources_.erase(std::remove_if(sources_.begin(), sources_.end(),
                                [](const auto& source) { return !source->is_open; }),
                 sources_.end());
}

void OutputRelay::read_from(Source& source) {
  char bytes[16384];
  while (source.is_open && queued_bytes_ < kMostQueuedBytes) {
    const ssize_t size =
        ::read(source.pipe.number(), bytes, std::min(sizeof bytes, source.most_left_bytes));
    if (size < 0 && errno == EINTR) continue;
    const bool is_finishing = source.most_left_bytes != std::numeric_limits<std::size_t>::max();
    if (size > 0) {
      take(source, std::string_view(bytes, static_cast<std::size_t>(size)));
      if (is_finishing) source.most_left_bytes -= static_cast<std::size_t>(size);
    } else if (size < 0 && errno == EAGAIN && !is_finishing) {
      return;
    } else {
      source.is_open = false;
      if (!source.line.empty()) end_line(source);
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
    if (source.line.size() == kLongestLineBytes) end_line(source);
    const std::size_t room = kLongestLineBytes - source.line.size();
    const std::size_t taken = std::min({bytes.find('\n'), bytes.size(), room});
    source.line.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
  }
}

void OutputRelay::end_line(Source& source) {
  push(source.route.target, absl::StrCat(source.route.prefix, source.line, "\n"));
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
  for (auto& source : sources_) {
    if (source->route.target != target) continue;
    source->route.target = -1;
    source->line.clear();
  }
  // What nobody reads and no file keeps is for nobody: the writers are told as they would be by the
  // output itself.
  sources_.erase(std::remove_if(sources_.begin(), sources_.end(),
                                [](const auto& source) {
                                  return source->route.target < 0 && !source->route.log.valid();
                                }),
                 sources_.end());
}

}  // namespace sinew::internal
