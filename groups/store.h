#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sinew/groups/internal/layer.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/worker.h"

namespace sinew {

namespace internal {
class StoreBackend;
}  // namespace internal

/// What one call of a store does differently.
struct StoreCallOptions {
  /// Unset: the store's.
  std::optional<std::chrono::nanoseconds> timeout;
};

/// Keys and values that several processes share: where process groups meet. A handle; copies name
/// the same store, which lives as long as they do. Thread-safe; calls block.
///
/// Keys have 1 to 4096 bytes, values 16 MiB at most. All functions throw RpcError: kInvalidArgument
/// for other sizes, kDeadlineExceeded with the keys that are missing when the timeout has passed,
/// kUnavailable when the server of the store has ended, kResourceExhausted when it is full,
/// kFailedPrecondition for an empty handle. A change whose timeout has passed may still be made
/// later.
///
///     sinew::Store store = sinew::Store::over();
///     store.set("address", "10.0.0.7");
///     std::string address = store.get("address");  // waits until it is set
class Store {
 public:
  static constexpr std::chrono::nanoseconds kDefaultTimeout = std::chrono::minutes(5);
  static constexpr std::size_t kMaxKeyBytes = 4096;
  static constexpr std::size_t kMaxValueBytes = std::size_t{16} << 20;

  /// An empty handle.
  Store() = default;
  bool valid() const { return backend_ != nullptr; }

  /// For threads of one process.
  static Store in_memory();
  /// In a file at this absolute path, on a file system with locks. It belongs to this user, and no
  /// one else may write it; kPermissionDenied otherwise. `users`: how many processes (or handles
  /// made by this function) use it; the last one of them that ends removes the file. 0: the file is
  /// not removed.
  static Store file(const std::string& path, int users = 0);

  /// Which end of a TCP store this process is.
  enum class TcpRole {
    /// Listens at the address and serves the others; port 0 takes any. Fails with kAlreadyExists
    /// when the address is in use.
    kServer,
    /// Connects to the server, trying again until the timeout.
    kClient,
    /// Serves, unless this process serves that address already: then shares that store.
    kSharedServer,
  };
  /// Whether the store may leave the machine: it neither encrypts nor authenticates.
  enum class TcpReach { kLoopbackOnly, kAnyNetwork };
  /// Served by one process at `address` ("host:port", "[v6]:port"). Listens at that address only.
  /// kPermissionDenied for another one than loopback without kAnyNetwork.
  static Store tcp(const std::string& address, TcpRole role,
                   TcpReach reach = TcpReach::kLoopbackOnly,
                   std::chrono::nanoseconds timeout = kDefaultTimeout);
  /// Served by rank 0 of the worker's job, over the workers' own links: as private and
  /// authenticated as their calls. Fails with kUnavailable from when rank 0 is lost,
  /// kFailedPrecondition for a worker that was not started by init_rpc(). Does not keep the worker.
  static Store over(const Worker& worker = current_worker());

  /// The same store, with this in front of all keys.
  Store with_prefix(std::string_view prefix) const;
  /// The same store, with another timeout for calls that set none.
  Store within(std::chrono::nanoseconds timeout) const;
  std::chrono::nanoseconds timeout() const { return timeout_; }

  void set(std::string_view key, std::string_view value,
           const StoreCallOptions& options = {}) const;
  /// Waits until the key is there.
  std::string get(std::string_view key, const StoreCallOptions& options = {}) const;
  /// Adds to a number, which is 0 when it is missing, and returns the sum. Others see it as decimal
  /// digits. kInvalidArgument when the value there is no such number.
  std::int64_t add(std::string_view key, std::int64_t amount,
                   const StoreCallOptions& options = {}) const;
  /// Waits until all keys are there.
  void wait(const std::vector<std::string>& keys, const StoreCallOptions& options = {}) const;
  /// Whether all keys are there.
  bool check(const std::vector<std::string>& keys, const StoreCallOptions& options = {}) const;
  /// Sets the key to `desired` if its value is `expected`, or if it is missing and `expected` is
  /// empty. Returns its value afterwards; `expected` when it is missing and is not set.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          const StoreCallOptions& options = {}) const;
  /// Whether the key was there.
  bool delete_key(std::string_view key, const StoreCallOptions& options = {}) const;
  /// Of the whole store, whatever the prefix. A file store counts some of its own.
  std::int64_t num_keys(const StoreCallOptions& options = {}) const;

  /// The port of a TCP store; 0 for others.
  int port() const;

 private:
  friend struct StoreAccess;
  explicit Store(std::shared_ptr<internal::StoreBackend> backend) : backend_(std::move(backend)) {}

  std::shared_ptr<internal::StoreBackend> backend_;
  std::string prefix_;
  std::chrono::nanoseconds timeout_ = kDefaultTimeout;
};

/// For the rest of groups/.
struct StoreAccess {
  static Store make(std::shared_ptr<internal::StoreBackend> backend) {
    return Store(std::move(backend));
  }
  static const std::shared_ptr<internal::StoreBackend>& backend(const Store& store) {
    return store.backend_;
  }
};

}  // namespace sinew
