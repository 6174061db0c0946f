#include "sinew/tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sinew::testing {
namespace {

using internal::MutexLock;

// What one direction holds back at most while its reader is slow.
constexpr std::size_t kMostHeldBytes = std::size_t{1} << 20;

// For what was changed to be read.
constexpr std::chrono::milliseconds kBeforeReset{200};

constexpr const char* kTargetHost = "127.0.0.1";

sockaddr_in address_of(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

/// The other end sees a reset rather than an end.
void close_with_reset(int socket) {
  if (socket < 0) return;
  const linger at_once{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(socket);
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

struct TcpProxy::Pipe {
  /// The one that came, and the one to the target.
  std::array<int, 2> sockets{-1, -1};
  /// What the socket of that index has sent and the other one has not taken.
  std::array<std::string, 2> held;
  bool reset_on_bytes = false;
  /// When it is reset, since what it carries was changed.
  std::optional<std::chrono::steady_clock::time_point> ends;
};

TcpProxy::TcpProxy(int port) : port_(port) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe2");
  wake_read_ = ends[0];
  wake_write_ = ends[1];
  listen();
  thread_ = std::thread([this] { run(); });
}

TcpProxy::~TcpProxy() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
  }
  wake();
  thread_.join();
  reset_all();
  if (listener_ >= 0) ::close(listener_);
  ::close(wake_read_);
  ::close(wake_write_);
}

void TcpProxy::refuse() {
  MutexLock lock(mutex_);
  refuses_ = true;
  reset_all_ = true;
  settle_locked();
}

void TcpProxy::pass() {
  MutexLock lock(mutex_);
  refuses_ = false;
  settle_locked();
}

void TcpProxy::reset_next(int count) {
  MutexLock lock(mutex_);
  to_reset_ = count;
  reset_all_ = true;
  settle_locked();
}

int TcpProxy::resets() const {
  MutexLock lock(mutex_);
  return resets_;
}

void TcpProxy::damage(std::function<bool(std::string& bytes)> change) {
  MutexLock lock(mutex_);
  reset_all_ = change == nullptr;
  damage_ = std::move(change);
  settle_locked();
}

int TcpProxy::damaged() const {
  MutexLock lock(mutex_);
  return damaged_;
}

void TcpProxy::settle_locked() {
  const std::uint64_t mine = ++asked_;
  wake();
  while (done_ < mine) obeyed_.wait(mutex_);
}

void TcpProxy::wake() const {
  const char byte = 0;
  // Full: it is awake anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_write_, &byte, 1);
}

void TcpProxy::listen() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) throw std::system_error(errno, std::generic_category(), "socket");
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in address = address_of(kHost, port_);
  const bool bound =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (!bound || ::listen(socket, 64) != 0) {
    ::close(socket);
    throw std::system_error(errno, std::generic_category(),
                            absl::StrCat("cannot listen on ", kHost, ":", port_));
  }
  listener_ = socket;
}

void TcpProxy::reset_all() {
  for (const Pipe& pipe : pipes_) {
    for (const int socket : pipe.sockets) close_with_reset(socket);
  }
  pipes_.clear();
}

// Does what the other threads have asked for.
void TcpProxy::obey() {
  std::array<char, 64> bytes;
  while (::read(wake_read_, bytes.data(), bytes.size()) > 0) {
  }
  MutexLock lock(mutex_);
  if (refuses_ && listener_ >= 0) ::close(std::exchange(listener_, -1));
  if (!refuses_ && listener_ < 0) listen();
  if (std::exchange(reset_all_, false)) reset_all();
  done_ = asked_;
  obeyed_.notify_all();
}

void TcpProxy::accept() {
  const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return;
  Pipe pipe;
  pipe.sockets[0] = socket;
  {
    MutexLock lock(mutex_);
    pipe.reset_on_bytes = to_reset_ > 0;
    if (pipe.reset_on_bytes) --to_reset_;
  }
  if (!pipe.reset_on_bytes) {
    // Blocks for no longer than loopback takes.
    pipe.sockets[1] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = address_of(kTargetHost, port_);
    if (::connect(pipe.sockets[1], reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
        0) {
      for (const int each : pipe.sockets) close_with_reset(each);
      return;
    }
    ::fcntl(pipe.sockets[1], F_SETFL, ::fcntl(pipe.sockets[1], F_GETFL) | O_NONBLOCK);
  }
  pipes_.push_back(std::move(pipe));
}

void TcpProxy::take(Pipe& pipe, std::size_t from, std::string bytes) {
  {
    MutexLock lock(mutex_);
    if (damage_ != nullptr && damage_(bytes)) {
      ++damaged_;
      if (!pipe.ends) pipe.ends = std::chrono::steady_clock::now() + kBeforeReset;
    }
  }
  pipe.held[from] += bytes;
}

int TcpProxy::patience() const {
  std::optional<std::chrono::steady_clock::time_point> first;
  for (const Pipe& pipe : pipes_) {
    if (pipe.ends && (!first || *pipe.ends < *first)) first = pipe.ends;
  }
  if (!first) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*first - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

bool TcpProxy::move(Pipe& pipe) {
  if (pipe.ends && *pipe.ends <= std::chrono::steady_clock::now()) return false;
  std::array<char, 65536> bytes;
  for (const std::size_t from : {0u, 1u}) {
    if (pipe.sockets[from] < 0) continue;
    std::string& held = pipe.held[from];
    if (held.size() < kMostHeldBytes) {
      const ssize_t read = ::recv(pipe.sockets[from], bytes.data(), bytes.size(), 0);
      if (read == 0 || (read < 0 && !would_block())) return false;
      if (read > 0) take(pipe, from, std::string(bytes.data(), static_cast<std::size_t>(read)));
    }
    if (pipe.reset_on_bytes) {
      if (held.empty()) continue;
      MutexLock lock(mutex_);
      ++resets_;
      return false;
    }
    if (held.empty()) continue;
    const ssize_t sent = ::send(pipe.sockets[1 - from], held.data(), held.size(), MSG_NOSIGNAL);
    if (sent < 0 && !would_block()) return false;
    if (sent > 0) held.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

void TcpProxy::run() {
  while (true) {
    std::vector<pollfd> waiting = {{wake_read_, POLLIN, 0}};
    if (listener_ >= 0) waiting.push_back({listener_, POLLIN, 0});
    for (const Pipe& pipe : pipes_) {
      for (const std::size_t side : {0u, 1u}) {
        if (pipe.sockets[side] < 0) continue;
        const bool may_read = pipe.held[side].size() < kMostHeldBytes;
        const bool has_bytes = !pipe.held[1 - side].empty();
        const int events = (may_read ? POLLIN : 0) | (has_bytes ? POLLOUT : 0);
        waiting.push_back({pipe.sockets[side], static_cast<short>(events), 0});
      }
    }
    if (::poll(waiting.data(), waiting.size(), patience()) < 0) continue;
    {
      MutexLock lock(mutex_);
      if (ends_) return;
    }
    obey();
    if (listener_ >= 0) accept();
    for (auto pipe = pipes_.begin(); pipe != pipes_.end();) {
      if (move(*pipe)) {
        ++pipe;
        continue;
      }
      for (const int socket : pipe->sockets) {
        if (pipe->reset_on_bytes) {
          close_with_reset(socket);
        } else if (socket >= 0) {
          ::close(socket);
        }
      }
      pipe = pipes_.erase(pipe);
    }
  }
}

}  // namespace sinew::testing
