#include "sinew/groups/internal/tcp_store.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/groups/internal/socket.h"
#include "sinew/groups/internal/store_frames.h"
#include "sinew/groups/internal/store_table.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/groups/internal/tcp_store_server.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"

namespace sinew::internal {
namespace {

// Between tries to reach a server that has not started.
constexpr std::chrono::milliseconds kRetry{20};
// The server gives up first, and says which keys are missing.
constexpr std::chrono::milliseconds kAnswerTime{2000};
// More than a server that lives leaves unanswered, however long it stands still.
constexpr std::size_t kMostUnanswered = 1000;
// A frame's id and its tag.
constexpr std::size_t kMaxIdBytes = 11;

class ServedTcpStore final : public StoreBackend {
 public:
  explicit ServedTcpStore(std::shared_ptr<TcpStoreServer> server)
      : server_(std::move(server)), local_(make_local_store(server_->service())) {}

  absl::StatusOr<proto::StoreReply> call(proto::StoreRequest request,
                                         Clock::TimePoint deadline) override {
    return local_->call(std::move(request), deadline);
  }
  int port() const override { return server_->port(); }
  TcpStoreServer& server() { return *server_; }

 private:
  const std::shared_ptr<TcpStoreServer> server_;
  const std::shared_ptr<StoreBackend> local_;
};

/// One connection for all threads: of those that wait, one reads for all. It outlives a server that
/// stands still for a while.
class TcpStoreClient final : public StoreBackend {
 public:
  TcpStoreClient(std::string address, Socket socket, FrameReader reader, int port)
      : address_(std::move(address)),
        port_(port),
        socket_(std::move(socket)),
        reader_(std::move(reader)) {}

  absl::StatusOr<proto::StoreReply> call(proto::StoreRequest request,
                                         Clock::TimePoint deadline) override {
    request.set_timeout_ms(milliseconds_until(deadline));
    proto::StoreFrame frame;
    *frame.mutable_request() = std::move(request);
    // Of many keys; the server would hang up.
    if (frame.ByteSizeLong() + kMaxIdBytes > kMaxStoreFrameBytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "a request with %d keys has %d bytes; the store at %s takes %d: ask for fewer at once",
          frame.request().keys_size(), frame.ByteSizeLong(), address_, kMaxStoreFrameBytes));
    }
    deadline += kAnswerTime;
    MutexLock lock(mutex_);
    const std::uint64_t id = ++last_id_;
    replies_.emplace(id, std::nullopt);
    frame.set_id(id);
    lock.unlock();
    const absl::Status sent = send(seal_frame(frame), deadline);
    lock.lock();
    if (!sent.ok()) break_locked(sent);
    absl::StatusOr<proto::StoreReply> reply = wait_locked(id, deadline, lock);
    if (!replies_.extract(id).mapped().has_value()) unanswered_.insert(id);
    return reply;
  }
  int port() const override { return port_; }

 private:
  absl::Status send(const std::string& bytes, Clock::TimePoint deadline) {
    MutexLock lock(send_mutex_);
    return send_all(socket_, bytes, deadline);
  }

  void break_locked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (broken_.ok()) {
      broken_ = absl::UnavailableError(absl::StrCat("the connection with the store at ", address_,
                                                    " has ended: ", why.message()));
    }
    changed_.notify_all();
  }

  absl::StatusOr<proto::StoreReply> wait_locked(std::uint64_t id, Clock::TimePoint deadline,
                                                MutexLock& lock)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (;;) {
      std::optional<proto::StoreReply>& reply = replies_.at(id);
      if (reply.has_value()) {
        const absl::Status status = status_of(*reply);
        if (!status.ok()) return status;
        return *std::move(reply);
      }
      if (!broken_.ok()) return broken_;
      if (Clock::system().now() >= deadline) {
        if (unanswered_.size() < kMostUnanswered) {
          return absl::DeadlineExceededError(
              absl::StrCat("the server of the store at ", address_, " does not answer"));
        }
        break_locked(absl::DeadlineExceededError("the server does not answer"));
        return broken_;
      }
      if (has_reader_) {
        changed_.wait_until(mutex_, deadline);
        continue;
      }
      has_reader_ = true;
      lock.unlock();
      absl::StatusOr<std::vector<proto::StoreFrame>> frames = read(deadline);
      lock.lock();
      has_reader_ = false;
      if (!frames.ok()) {
        break_locked(frames.status());
      } else {
        take_locked(*std::move(frames));
      }
      // Their replies may have arrived, and one of them must go on reading.
      changed_.notify_all();
    }
  }

  void take_locked(std::vector<proto::StoreFrame> frames) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (proto::StoreFrame& frame : frames) {
      // The caller of that request has given up.
      if (unanswered_.erase(frame.id()) > 0) continue;
      const auto found = replies_.find(frame.id());
      if (found == replies_.end() || found->second.has_value()) {
        return break_locked(absl::UnavailableError("the server answers what was not asked"));
      }
      found->second = std::move(*frame.mutable_reply());
    }
  }

  // By the one thread that reads.
  absl::StatusOr<std::vector<proto::StoreFrame>> read(Clock::TimePoint deadline) {
    std::vector<proto::StoreFrame> frames;
    const absl::StatusOr<bool> ready = wait_readable(socket_, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return frames;
    std::array<char, 65536> buffer;
    const ssize_t count = recv(socket_.fd(), buffer.data(), buffer.size(), 0);
    if (count == 0) return absl::UnavailableError("the server has closed it");
    if (count < 0) {
      if (errno == EAGAIN || errno == EINTR) return frames;
      return absl::UnavailableError(std::strerror(errno));
    }
    reader_.append(buffer.data(), static_cast<std::size_t>(count));
    for (;;) {
      absl::StatusOr<std::optional<proto::StoreFrame>> frame = reader_.next(kMaxStoreFrameBytes);
      if (!frame.ok()) return frame.status();
      if (!frame->has_value()) return frames;
      if (!(*frame)->has_reply()) return absl::UnavailableError("the server sends no replies");
      frames.push_back(**std::move(frame));
    }
  }

  const std::string address_;
  const int port_;
  const Socket socket_;
  FrameReader reader_;  // of the thread that reads

  Mutex send_mutex_;
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Of those that have been asked for; unset: it has not come.
  absl::flat_hash_map<std::uint64_t, std::optional<proto::StoreReply>> replies_
      ABSL_GUARDED_BY(mutex_);
  /// Of requests that were given up: their replies may still arrive.
  absl::flat_hash_set<std::uint64_t> unanswered_ ABSL_GUARDED_BY(mutex_);
  bool has_reader_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

/// Servers of this process by the address that they were asked to listen at.
struct SharedServers {
  static SharedServers& get() {
    static SharedServers* const servers = new SharedServers();
    return *servers;
  }
  Mutex mutex;
  absl::flat_hash_map<std::string, std::weak_ptr<TcpStoreServer>> by_address ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::shared_ptr<StoreBackend>> serve(const std::string& literal,
                                                    Store::TcpRole role) {
  SharedServers& shared = SharedServers::get();
  MutexLock lock(shared.mutex);
  std::weak_ptr<TcpStoreServer>& entry = shared.by_address[literal];
  if (role == Store::TcpRole::kSharedServer) {
    if (auto server = entry.lock()) return std::make_shared<ServedTcpStore>(std::move(server));
  }
  absl::StatusOr<std::shared_ptr<TcpStoreServer>> server = TcpStoreServer::start(literal);
  if (!server.ok()) return server.status();
  entry = *server;
  return std::make_shared<ServedTcpStore>(*std::move(server));
}

/// At all addresses of this machine, of both versions where it has both.
absl::StatusOr<std::shared_ptr<StoreBackend>> serve_everywhere(const std::string& address,
                                                               Store::TcpRole role) {
  const int port = parse_host_port(address)->port;
  absl::StatusOr<std::shared_ptr<StoreBackend>> served = serve(join_host_port("::", port), role);
  if (served.ok() || absl::IsAlreadyExists(served.status())) return served;
  return serve(join_host_port("0.0.0.0", port), role);
}

/// kUnavailable and kDeadlineExceeded: it may go better soon.
absl::StatusOr<std::shared_ptr<StoreBackend>> connect_once(const std::string& literal,
                                                           Clock::TimePoint deadline) {
  absl::StatusOr<Socket> socket = connect_to(literal, deadline);
  if (!socket.ok()) return socket.status();
  const absl::Status greeted = send_all(*socket, seal_frame(greeting_frame()), deadline);
  if (!greeted.ok()) return greeted;
  FrameReader reader;
  for (;;) {
    absl::StatusOr<std::optional<proto::StoreFrame>> frame = reader.next(kMaxGreetingBytes);
    if (!frame.ok() || (frame->has_value() && !check_greeting(**frame).ok())) {
      const absl::Status why = frame.ok() ? check_greeting(**frame) : frame.status();
      return absl::FailedPreconditionError(absl::StrCat(
          "who listens at ", literal, " serves no store: ", why.message(),
          ". If it is a worker of Sinew, let the group meet over it (GroupOptions::worker); "
          "otherwise choose another port"));
    }
    if (frame->has_value()) break;
    const absl::StatusOr<bool> ready = wait_readable(*socket, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) {
      return absl::DeadlineExceededError(
          absl::StrCat("who listens at ", literal, " does not answer as a store does"));
    }
    std::array<char, 256> buffer;
    const ssize_t count = recv(socket->fd(), buffer.data(), buffer.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
      return absl::UnavailableError(absl::StrCat("who listens at ", literal, " hangs up"));
    }
    if (count > 0) reader.append(buffer.data(), static_cast<std::size_t>(count));
  }
  const absl::StatusOr<HostPort> parsed = parse_host_port(literal);
  return std::make_shared<TcpStoreClient>(literal, *std::move(socket), std::move(reader),
                                          parsed->port);
}

absl::Status check_reach(const std::vector<std::string>& literals, const std::string& address,
                         Store::TcpReach reach) {
  if (reach == Store::TcpReach::kAnyNetwork) return absl::OkStatus();
  for (const std::string& literal : literals) {
    const absl::StatusOr<HostPort> parsed = parse_host_port(literal);
    if (parsed.ok() && parsed->is_loopback()) continue;
    return absl::PermissionDeniedError(absl::StrCat(
        "the store at ", address,
        " would be open to the network: a TCP store neither encrypts nor authenticates. Use one "
        "over a worker with TLS, or say that the network is trusted"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<StoreBackend>> open_tcp_store(const std::string& address,
                                                             Store::TcpRole role,
                                                             Store::TcpReach reach,
                                                             Clock::TimePoint deadline) {
  absl::Status last;
  do {
    const absl::StatusOr<std::vector<std::string>> literals = addresses_of(address);
    if (!literals.ok() && literals.status().code() != absl::StatusCode::kUnavailable) {
      return literals.status();
    }
    if (literals.ok()) {
      const absl::Status may = check_reach(*literals, address, reach);
      if (!may.ok()) return may;
      if (role != Store::TcpRole::kClient) {
        // A name of this machine's own that leads to loopback here leads to it from elsewhere too.
        const bool opens_up =
            reach == Store::TcpReach::kAnyNetwork && is_own_name_on_loopback(address);
        return opens_up ? serve_everywhere(address, role) : serve(literals->front(), role);
      }
    }
    last = literals.status();
    for (std::size_t at = 0; literals.ok() && at < literals->size(); ++at) {
      absl::StatusOr<std::shared_ptr<StoreBackend>> store = connect_once((*literals)[at], deadline);
      if (store.ok()) return store;
      last = store.status();
      if (last.code() != absl::StatusCode::kUnavailable) return last;
    }
    std::this_thread::sleep_until(std::min(deadline, Clock::system().now() + kRetry));
  } while (Clock::system().now() < deadline);
  return absl::DeadlineExceededError(
      absl::StrCat("the store at ", address, " could not be reached in time: ", last.message()));
}

void stop_listening(StoreBackend& store) {
  if (auto* served = dynamic_cast<ServedTcpStore*>(&store)) served->server().stop_listening();
}

}  // namespace sinew::internal
