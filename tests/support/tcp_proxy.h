#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::testing {

/// A port of 127.0.0.2 behind which the same one of 127.0.0.1 lies, and the accidents of a network
/// between the two. A worker that is to be reached through it advertises kHost, and has `same_host`
/// off, since Unix sockets go round it. Thread-safe. Failures throw std::runtime_error.
class TcpProxy {
 public:
  /// Where it listens.
  static constexpr const char* kHost = "127.0.0.2";

  /// Nobody needs to listen behind it yet.
  explicit TcpProxy(int port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  /// As a firewall that rejects: resets all connections, and nobody listens here. Returns when that
  /// is so.
  void refuse();
  /// Listens and passes on again.
  void pass();
  /// Resets all connections, and the next `count` ones as soon as their first bytes come: in the
  /// midst of a TLS handshake.
  void reset_next(int count);
  /// How many of those have been reset.
  int resets() const;
  /// From now on `change` sees what comes, on the proxy's thread, and says whether it has changed
  /// it: a connection of which something was changed is reset a fifth of a second later. Null:
  /// nobody does any more, and all connections are reset.
  void damage(std::function<bool(std::string& bytes)> change);
  /// How often something was changed.
  int damaged() const;

 private:
  /// One connection: its two sockets, and what each has for the other.
  struct Pipe;

  void run();
  /// Waits until the thread has done what state_ asks for.
  void settle_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void wake() const;
  void obey();
  void listen();
  void reset_all();
  void accept();
  void take(Pipe& pipe, std::size_t from, std::string bytes);
  /// Until the first connection is to be reset, in milliseconds; -1: none is.
  int patience() const;
  /// Moves what can be moved. False: the connection is over.
  bool move(Pipe& pipe);

  const int port_;
  int wake_read_ = -1;
  int wake_write_ = -1;

  // Of the thread.
  int listener_ = -1;
  std::list<Pipe> pipes_;

  mutable internal::Mutex mutex_;
  internal::CondVar obeyed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  bool refuses_ ABSL_GUARDED_BY(mutex_) = false;
  bool reset_all_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int to_reset_ ABSL_GUARDED_BY(mutex_) = 0;
  int resets_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<bool(std::string& bytes)> damage_ ABSL_GUARDED_BY(mutex_);
  int damaged_ ABSL_GUARDED_BY(mutex_) = 0;

  std::thread thread_;
};

}  // namespace sinew::testing
