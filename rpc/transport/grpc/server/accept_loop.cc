#include "sinew/rpc/transport/grpc/server/accept_loop.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace sinew::internal {
namespace {

// While the system cannot accept: how long until the next attempt.
constexpr int kPauseMs = 100;

FileDescriptor open_event() { return FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

FileDescriptor accept_from(const FileDescriptor& socket) {
  return FileDescriptor(::accept4(socket.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

// The other end may have left again, which some systems tell by other codes than ECONNABORTED.
bool is_passing(int error) {
  return error == EAGAIN || error == ECONNABORTED || error == EINTR || error == EPROTO ||
         error == ENETDOWN || error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH ||
         error == ENETUNREACH;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AcceptLoop>> AcceptLoop::start(
    std::vector<Listener> listeners, std::function<void(const std::string&)> on_refusal) {
  FileDescriptor stop = open_event();
  FileDescriptor spare = open_event();
  if (!stop.valid() || !spare.valid()) {
    return absl::ResourceExhaustedError(
        "cannot accept connections: the process has no file descriptor left (RLIMIT_NOFILE)");
  }
  try {
    return std::unique_ptr<AcceptLoop>(new AcceptLoop(std::move(listeners), std::move(on_refusal),
                                                      std::move(stop), std::move(spare)));
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("cannot accept connections: no thread can be started");
  }
}

AcceptLoop::AcceptLoop(std::vector<Listener> listeners,
                       std::function<void(const std::string&)> on_refusal, FileDescriptor stop,
                       FileDescriptor spare)
    : listeners_(std::move(listeners)),
      on_refusal_(std::move(on_refusal)),
      stop_(std::move(stop)),
      spare_(std::move(spare)),
      thread_([this] {
        pthread_setname_np(pthread_self(), "sinew-accept");
        serve();
      }) {}

AcceptLoop::~AcceptLoop() {
  const std::uint64_t one = 1;
  // Fails for a full counter only, which wakes as well.
  [[maybe_unused]] const auto written = ::write(stop_.number(), &one, sizeof one);
  thread_.join();
}

void AcceptLoop::serve() {
  std::vector<pollfd> all;
  for (const Listener& listener : listeners_) all.push_back({listener.socket.number(), POLLIN, 0});
  all.push_back({stop_.number(), POLLIN, 0});
  while (true) {
    const bool polled = ::poll(all.data(), all.size(), -1) >= 0;
    bool served = polled || errno == EINTR;
    if (polled && all.back().revents != 0) return;
    for (std::size_t i = 0; polled && i < listeners_.size(); ++i) {
      if (all[i].revents != 0) served = accept_one(listeners_[i]) && served;
    }
    if (!served) ::poll(&all.back(), 1, kPauseMs);
  }
}

// False: another attempt right now would fail too.
bool AcceptLoop::accept_one(const Listener& listener) {
  FileDescriptor accepted = accept_from(listener.socket);
  if (!accepted.valid()) {
    return is_passing(errno) || ((errno == EMFILE || errno == ENFILE) && drop_one(listener));
  }
  listener.on_connection(std::move(accepted));
  return true;
}

// A connection that stays in the queue would keep the listener ready, and its client waiting.
bool AcceptLoop::drop_one(const Listener& listener) {
  { const FileDescriptor given_up = std::exchange(spare_, FileDescriptor()); }
  const bool dropped = accept_from(listener.socket).valid();
  spare_ = open_event();
  if (dropped) on_refusal_("a connection was refused: the process has no file descriptor left");
  return dropped && spare_.valid();
}

}  // namespace sinew::internal
