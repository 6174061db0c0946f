#include "sinew/launch/internal/fork_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/launch/internal/fork_service.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using Clock = std::chrono::steady_clock;

// To load the program, or to fork it. Who takes longer is not faster than exec.
constexpr auto kPatience = std::chrono::minutes(1);
// A process that is killed is gone at once, unless it hangs in the kernel.
constexpr auto kKillPatience = std::chrono::seconds(30);

/// False: it is not.
bool wait_until_readable(int descriptor, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0) return false;
    pollfd wait{descriptor, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(left) + 1) > 0) return true;
  }
}

absl::StatusOr<FileDescriptor> readable_when(const std::vector<int>& descriptors) {
  FileDescriptor result(::epoll_create1(EPOLL_CLOEXEC));
  bool is_well = result.valid();
  for (const int number : descriptors) {
    epoll_event event{};
    event.events = EPOLLIN;
    is_well = is_well && ::epoll_ctl(result.number(), EPOLL_CTL_ADD, number, &event) == 0;
  }
  if (!is_well) return absl::ErrnoToStatus(errno, "cannot watch the fork server");
  return result;
}

}  // namespace

class ForkServer::ForkedProcess : public JobProcess {
 public:
  ForkedProcess(ForkServer& server, pid_t pid, FileDescriptor pidfd)
      : server_(server), pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid() const override { return pid_; }
  int descriptor() const override {
    // The server tells how it ended, which may have been read already; if it is gone itself, so is
    // the process in a moment.
    const bool is_about_to_end = server_.is_gone_ || server_.ends_.count(pid_) > 0;
    return is_about_to_end ? pidfd_.number() : server_.readable_.number();
  }
  void signal(int number) const override {
    ::syscall(SYS_pidfd_send_signal, pidfd_.number(), number, nullptr, 0);
    // A server that is stopped would not tell what became of it.
    server_.process_->signal(SIGCONT);
  }
  std::optional<ProcessEnd> take_end() override {
    if (std::optional<ProcessEnd> end = server_.take_end(pid_)) return end;
    const bool has_ended = server_.is_gone_ && wait_until_readable(pidfd_.number(), Clock::now());
    if (!has_ended) return std::nullopt;
    return ProcessEnd{ProcessEnd::Kind::kWithServer, 0};
  }

 private:
  ForkServer& server_;
  const pid_t pid_;
  const FileDescriptor pidfd_;
};

ForkServer::ForkServer(std::unique_ptr<JobProcess> process, FileDescriptor socket,
                       FileDescriptor readable)
    : process_(std::move(process)), channel_(std::move(socket)), readable_(std::move(readable)) {}

absl::StatusOr<std::unique_ptr<ForkServer>> ForkServer::start(ChildCommand command) {
  // The forked processes are not this one's children.
  if (absl::Status pidfds = ChildProcess::check_pidfds(); !pidfds.ok()) return pidfds;
  auto sockets = ForkChannel::make_sockets();
  if (!sockets.ok()) return sockets.status();
  command.descriptors.emplace_back(sockets->second.number(), kChannelDescriptor);
  JobProcess::Start started = ChildProcess::start(command);
  if (!started.process) return absl::UnavailableError(started.failure.text());
  // It has its own: when it is gone nobody is at that end.
  sockets->second = FileDescriptor();
  absl::StatusOr<FileDescriptor> readable =
      readable_when({sockets->first.number(), started.process->descriptor()});
  const absl::Status watched = readable.status();
  std::unique_ptr<ForkServer> server(
      new ForkServer(std::move(started.process), std::move(sockets->first),
                     watched.ok() ? *std::move(readable) : FileDescriptor()));
  absl::Status ready = watched;
  if (watched.ok()) {
    const absl::StatusOr<ForkMessage> first = server->receive_soon();
    ready = first.status();
    if (first.ok() && !first->text.empty()) ready = absl::FailedPreconditionError(first->text);
  }
  if (ready.ok()) return server;
  server->end();
  return ready;
}

JobProcess::Start ForkServer::fork(const Request& request) {
  JobProcess::Start result;
  result.failure = {ProcessEnd::Kind::kWithServer, 0};
  ForkMessage message{ForkMessage::Kind::kFork, request.rank, 0, "", {}};
  for (const auto& [name, value] : request.variables) {
    absl::StrAppend(&message.text, name, "=", value, absl::string_view("\0", 1));
  }
  for (const int number : {request.output, request.error_output, request.report}) {
    message.descriptors.emplace_back(::fcntl(number, F_DUPFD_CLOEXEC, 0));
    if (message.descriptors.back().valid()) continue;
    result.failure = ProcessEnd::not_started(errno);
    return result;
  }
  if (is_gone_ || !channel_.send(message).ok()) return result;
  absl::StatusOr<ForkMessage> answer = receive_soon();
  if (!answer.ok()) return result;
  if (answer->kind == ForkMessage::Kind::kForked && answer->descriptors.size() == 1) {
    result.process = std::make_unique<ForkedProcess>(*this, answer->number,
                                                     std::move(answer->descriptors.front()));
  } else {
    result.failure = ProcessEnd::not_started(
        answer->kind == ForkMessage::Kind::kNotForked ? answer->number : EMFILE);
  }
  return result;
}

void ForkServer::end_forking() { channel_.end_sending(); }

void ForkServer::end() {
  const auto deadline = Clock::now() + kKillPatience;
  process_->signal(SIGKILL);
  if (wait_until_readable(process_->descriptor(), deadline)) process_->take_end();
}

absl::StatusOr<ForkMessage> ForkServer::receive_soon() {
  const auto deadline = Clock::now() + kPatience;
  while (wait_until_readable(readable_.number(), deadline)) {
    // First: what it has said before is there then.
    const bool has_ended = wait_until_readable(process_->descriptor(), Clock::now());
    absl::StatusOr<ForkMessage> message = channel_.receive(ForkChannel::Wait::kNo);
    if (message.ok() || !absl::IsDeadlineExceeded(message.status()) || has_ended) {
      is_gone_ = !message.ok();
      return message;
    }
  }
  return absl::DeadlineExceededError("the fork server does not answer");
}

std::optional<ProcessEnd> ForkServer::take_end(pid_t pid) {
  take_messages();
  const auto found = ends_.find(pid);
  if (found == ends_.end()) return std::nullopt;
  return found->second;
}

void ForkServer::take_messages() {
  // First, as above.
  const bool has_ended = wait_until_readable(process_->descriptor(), Clock::now());
  while (!is_gone_) {
    const absl::StatusOr<ForkMessage> message = channel_.receive(ForkChannel::Wait::kNo);
    if (!message.ok()) {
      is_gone_ = has_ended || !absl::IsDeadlineExceeded(message.status());
      return;
    }
    if (message->kind == ForkMessage::Kind::kExited) {
      ends_[message->number] = ProcessEnd::exited(message->detail);
    } else if (message->kind == ForkMessage::Kind::kSignalled) {
      ends_[message->number] = ProcessEnd::signalled(message->detail);
    }
  }
}

}  // namespace sinew::internal
