#include "sinew/groups/internal/tcp_store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "sinew/groups/internal/group_runtime.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/process_life.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxConnections = 4096;
constexpr std::size_t kMaxWaitingOfConnection = 4096;
// A client that has so much to read is not served before it has; what it waited for comes all the
// same.
constexpr std::size_t kEnoughUnsentBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxUnsentBytes = std::size_t{512} << 20;
constexpr std::size_t kReadBytes = std::size_t{64} << 10;
// When the system has no descriptor for a connection that waits.
constexpr int kPauseMs = 100;

void wake_up(const Socket& wake) {
  const std::uint64_t one = 1;
  // It can only fail when the thread is about to wake up anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake.fd(), &one, sizeof one);
}

}  // namespace

absl::StatusOr<std::shared_ptr<TcpStoreServer>> TcpStoreServer::start(
    const std::string& host_port, std::chrono::nanoseconds greeting_time) {
  absl::StatusOr<Socket> listener = listen_at(host_port);
  if (!listener.ok()) return listener.status();
  Socket wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return absl::ResourceExhaustedError("no descriptor for an event is left");
  try {
    return std::shared_ptr<TcpStoreServer>(
        new TcpStoreServer(*std::move(listener), std::move(wake), greeting_time));
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("the thread of a store's server cannot be started");
  }
}

TcpStoreServer::TcpStoreServer(Socket listener, Socket wake, std::chrono::nanoseconds greeting_time)
    : service_(std::make_shared<StoreService>(GroupRuntime::get().timers())),
      outbox_(std::make_shared<Outbox>()),
      port_(port_of(listener)),
      greeting_time_(greeting_time),
      listener_(std::move(listener)) {
  outbox_->wake = std::move(wake);
  thread_ = std::thread([this] { run(); });
}

TcpStoreServer::~TcpStoreServer() {
  {
    MutexLock lock(outbox_->mutex);
    outbox_->ends = true;
  }
  wake_up(outbox_->wake);
  thread_.join();
  service_->stop(absl::UnavailableError("the store's server has ended"));
}

void TcpStoreServer::stop_listening() {
  Outbox& outbox = *outbox_;
  MutexLock lock(outbox.mutex);
  outbox.listens = false;
  wake_up(outbox.wake);
  while (!outbox.has_stopped_listening) {
    outbox.changed.wait_until(outbox.mutex, Clock::system().now() + std::chrono::seconds(1));
  }
}

void TcpStoreServer::run() {
  pthread_setname_np(pthread_self(), "sinew-store");
  for (;;) {
    std::vector<pollfd> polled{{outbox_->wake.fd(), POLLIN, 0}};
    if (listener_.valid()) polled.push_back({listener_.fd(), POLLIN, 0});
    const std::size_t first = polled.size();
    std::vector<ConnectionId> ids;
    for (const auto& [id, connection] : connections_) {
      const int events = (connection.unsent_bytes() > 0 ? POLLOUT : 0) |
                         (connection.unsent_bytes() < kEnoughUnsentBytes ? POLLIN : 0);
      polled.push_back({connection.socket.fd(), static_cast<short>(events), 0});
      ids.push_back(id);
    }
    poll(polled.data(), polled.size(), poll_timeout());
    ProcessLife::stand_still_at_exit();
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t woken = ::read(outbox_->wake.fd(), &count, sizeof count);
    {
      MutexLock lock(outbox_->mutex);
      if (outbox_->ends) break;
      if (!outbox_->listens && listener_.valid()) {
        listener_.close();
        outbox_->has_stopped_listening = true;
        outbox_->changed.notify_all();
      }
    }
    for (std::size_t at = 0; at < ids.size(); ++at) {
      const auto found = connections_.find(ids[at]);
      if ((polled[first + at].revents & ~POLLOUT) == 0) continue;
      if (!read(ids[at], found->second)) end(ids[at]);
    }
    take_answers();
    const Clock::TimePoint now = Clock::system().now();
    std::vector<ConnectionId> over;
    for (auto& [id, connection] : connections_) {
      if (!write(connection) || !serve_frames(id, connection) ||
          connection.unsent_bytes() > kMaxUnsentBytes ||
          (!connection.has_greeted && connection.greet_by <= now)) {
        over.push_back(id);
      }
    }
    for (const ConnectionId id : over) end(id);
    if (listener_.valid()) accept_all();
  }
  // What has been answered is on its way even when the process ends now.
  take_answers();
  for (auto& [id, connection] : connections_) {
    write(connection);
    for (const auto& [ours, request] : connection.waiting) service_->forget(request);
  }
}

int TcpStoreServer::poll_timeout() const {
  std::uint64_t left = std::uint64_t{3600} * 1000;
  for (const auto& [id, connection] : connections_) {
    if (!connection.has_greeted) left = std::min(left, milliseconds_until(connection.greet_by));
  }
  // At the limit of connections, it looks again whether one has ended.
  if (connections_.size() >= kMaxConnections) left = std::min<std::uint64_t>(left, kPauseMs);
  return static_cast<int>(left);
}

void TcpStoreServer::accept_all() {
  while (connections_.size() < kMaxConnections) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors: the connection stays in the queue, and poll() would report it without
      // end.
      if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, kPauseMs);
      return;
    }
    Connection& connection = connections_[++last_id_];
    connection.socket = std::move(socket);
    connection.greet_by = Clock::system().now() + greeting_time_;
    connection.unsent = seal_frame(greeting_frame());
    write(connection);
  }
}

bool TcpStoreServer::read(ConnectionId id, Connection& connection) {
  std::array<char, kReadBytes> buffer;
  const ssize_t count = recv(connection.socket.fd(), buffer.data(), buffer.size(), 0);
  if (count == 0) return false;
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  connection.reader.append(buffer.data(), static_cast<std::size_t>(count));
  return serve_frames(id, connection);
}

bool TcpStoreServer::serve_frames(ConnectionId id, Connection& connection) {
  while (connection.unsent_bytes() < kEnoughUnsentBytes) {
    absl::StatusOr<std::optional<proto::StoreFrame>> frame =
        connection.reader.next(connection.has_greeted ? kMaxStoreFrameBytes : kMaxGreetingBytes);
    if (!frame.ok()) return false;
    if (!frame->has_value()) return true;
    if (!on_frame(id, connection, **std::move(frame))) return false;
    // A few bytes of requests can ask for a lot: it counts before the next one.
    take_answers();
  }
  return true;
}

bool TcpStoreServer::on_frame(ConnectionId id, Connection& connection, proto::StoreFrame frame) {
  if (!connection.has_greeted) {
    connection.has_greeted = check_greeting(frame).ok();
    return connection.has_greeted;
  }
  const std::uint64_t number = frame.id();
  if (!frame.has_request() || connection.waiting.size() >= kMaxWaitingOfConnection ||
      connection.waiting.count(number) != 0) {
    return false;
  }
  // take_answers() takes it out again, on this thread.
  connection.waiting[number] = service_->serve(
      frame.request(),
      [outbox = std::weak_ptr<Outbox>(outbox_), id, number](proto::StoreReply reply) {
        const auto target = outbox.lock();
        if (target == nullptr) return;
        proto::StoreFrame answer;
        answer.set_id(number);
        *answer.mutable_reply() = std::move(reply);
        {
          MutexLock lock(target->mutex);
          target->frames[id].push_back(std::move(answer));
        }
        wake_up(target->wake);
      });
  return true;
}

void TcpStoreServer::take_answers() {
  absl::flat_hash_map<ConnectionId, std::vector<proto::StoreFrame>> frames;
  {
    MutexLock lock(outbox_->mutex);
    frames.swap(outbox_->frames);
  }
  for (const auto& [id, answers] : frames) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    Connection& connection = found->second;
    for (const proto::StoreFrame& answer : answers) {
      connection.waiting.erase(answer.id());
      connection.unsent += seal_frame(answer);
    }
  }
}

bool TcpStoreServer::write(Connection& connection) {
  while (connection.sent < connection.unsent.size()) {
    const ssize_t count = send(connection.socket.fd(), connection.unsent.data() + connection.sent,
                               connection.unsent.size() - connection.sent, MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<std::size_t>(count);
  }
  connection.unsent.clear();
  connection.sent = 0;
  return true;
}

void TcpStoreServer::end(ConnectionId id) {
  const auto found = connections_.find(id);
  for (const auto& [ours, request] : found->second.waiting) service_->forget(request);
  connections_.erase(found);
}

}  // namespace sinew::internal
