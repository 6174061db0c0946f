#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "sinew/groups/internal/socket.h"
#include "sinew/groups/internal/store_frames.h"
#include "sinew/groups/internal/store_service.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Serves a store to processes that connect, on a thread of its own. Clients are not trusted: a
/// connection that does not greet soon, or sends what is no frame, is closed. Thread-safe.
class TcpStoreServer {
 public:
  static constexpr std::chrono::seconds kGreetingTime{10};

  /// At `host_port`, a literal; port 0 takes any. Errors as listen_at().
  static absl::StatusOr<std::shared_ptr<TcpStoreServer>> start(
      const std::string& host_port, std::chrono::nanoseconds greeting_time = kGreetingTime);
  /// What waits at clients fails.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  int port() const { return port_; }
  const std::shared_ptr<StoreService>& service() const { return service_; }
  /// Returns when the port is free. Idempotent.
  void stop_listening();

 private:
  using ConnectionId = std::uint64_t;
  struct Connection {
    Socket socket;
    FrameReader reader;
    bool has_greeted = false;
    Clock::TimePoint greet_by;
    std::string unsent;
    std::size_t sent = 0;
    std::size_t unsent_bytes() const { return unsent.size() - sent; }
    /// Those that wait: the ids of the service, by the client's own.
    std::map<std::uint64_t, StoreService::RequestId> waiting;
  };
  /// Where answers of the service come, on any thread.
  struct Outbox {
    Mutex mutex;
    absl::flat_hash_map<ConnectionId, std::vector<proto::StoreFrame>> frames ABSL_GUARDED_BY(mutex);
    bool listens ABSL_GUARDED_BY(mutex) = true;
    bool ends ABSL_GUARDED_BY(mutex) = false;
    bool has_stopped_listening ABSL_GUARDED_BY(mutex) = false;
    CondVar changed;
    Socket wake;
  };

  TcpStoreServer(Socket listener, Socket wake, std::chrono::nanoseconds greeting_time);
  void run();
  void accept_all();
  bool read(ConnectionId id, Connection& connection);
  /// Those that are there as a whole, while the client reads what it is answered. False: it ends.
  bool serve_frames(ConnectionId id, Connection& connection);
  bool on_frame(ConnectionId id, Connection& connection, proto::StoreFrame frame);
  static bool write(Connection& connection);
  void take_answers();
  void end(ConnectionId id);
  int poll_timeout() const;

  const std::shared_ptr<StoreService> service_;
  const std::shared_ptr<Outbox> outbox_;
  const int port_;
  const std::chrono::nanoseconds greeting_time_;

  // The thread's own.
  Socket listener_;
  std::map<ConnectionId, Connection> connections_;
  ConnectionId last_id_ = 0;

  std::thread thread_;
};

}  // namespace sinew::internal
