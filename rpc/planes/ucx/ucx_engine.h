#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/ucx/ucx_plane.h"

namespace sinew::internal {

/// Who may send to a link: only those whom it has told its token.
using UcxToken = std::array<char, 16>;

/// The header of all active messages, in the byte order of the host.
struct UcxHeader {
  enum Kind : std::uint32_t {
    kCheck,   // prove yourself
    kFetch,   // send what is located at `handle`
    kDigest,  // answers kCheck
    kData,    // answers kFetch
    kDone,    // after kData: it was still located when all of it had left
    kGone,    // answers kFetch: there is nothing
  };
  UcxToken token{};
  std::uint32_t kind = kCheck;
  std::uint32_t unused = 0;
  /// Of the question, chosen by who asks.
  std::uint64_t sequence = 0;
  std::uint64_t handle = 0;
  std::uint64_t size_bytes = 0;
};

/// An active message that has arrived; valid until the callback returns.
struct UcxMessage {
  UcxHeader header;
  /// The data, or with `by_rendezvous` what UcxEngine::receive() gets them by.
  void* data = nullptr;
  std::size_t size_bytes = 0;
  bool by_rendezvous = false;
};

struct UcxEndpoint;

/// Hears what is sent to one token, on the engine's thread.
class UcxReceiver {
 public:
  virtual ~UcxReceiver() = default;
  virtual void on_message(const UcxMessage& message) = 0;
  virtual void on_endpoint_error(UcxEndpoint* endpoint, const absl::Status& status) = 0;
};

/// A way to a peer's worker; belongs to the engine.
struct UcxEndpoint {
  class UcxEngine* engine = nullptr;
  ucp_ep_h handle = nullptr;
  std::string address;
  bool closing = false;
};

absl::Status ucx_error(absl::string_view what, ucs_status_t status);

/// UCX for one transport: a context, a worker, and the thread that alone touches them. It sleeps on
/// the worker's event descriptor.
class UcxEngine : public std::enable_shared_from_this<UcxEngine> {
 public:
  using Task = absl::AnyInvocable<void() &&>;
  using OnEnd = absl::AnyInvocable<void(absl::Status) &&>;
  /// When, and which one of that time.
  using Timer = std::pair<std::chrono::steady_clock::time_point, std::uint64_t>;

  /// An error holds the text of UCX. Throws RpcError (kResourceExhausted) where no thread starts.
  static absl::StatusOr<std::shared_ptr<UcxEngine>> start(const UcxOptions& options);
  ~UcxEngine();

  const std::string& worker_address() const { return worker_address_; }
  const UcxOptions& options() const { return options_; }
  /// Runs `task` on the thread; drops it after stop(). Any thread.
  void post(Task task);
  /// Ends the thread, and all of UCX with it. Waits for that unless it is called by the thread
  /// itself. Any thread; once.
  void stop();

  // The rest is for the thread alone.

  Timer run_after(std::chrono::nanoseconds delay, Task task);
  void cancel(const Timer& timer) { timers_.erase(timer); }
  /// From here on messages with this token go to `receiver`.
  void enter(const UcxToken& token, std::weak_ptr<UcxReceiver> receiver);
  void leave(const UcxToken& token);

  /// One for all links to a worker: stays until UCX reports an error there, or the engine ends.
  /// UCX 1.13 faults, at either end, when one is closed while data move.
  absl::StatusOr<UcxEndpoint*> connect(const std::string& worker_address);
  /// `data` must stay until `on_end` runs, which may be at once. `by_rendezvous`: without a copy,
  /// and the end means that the other side has them all.
  void send(UcxEndpoint* endpoint, const UcxHeader& header, absl::string_view data,
            bool by_rendezvous, OnEnd on_end);
  /// As send(), for a message with `by_rendezvous`, within on_message().
  void receive(const UcxMessage& message, char* to, OnEnd on_end);

 private:
  /// One that UCX has under way.
  struct Operation {
    UcxEngine* engine = nullptr;
    UcxHeader header;
    OnEnd on_end;
  };

  explicit UcxEngine(const UcxOptions& options) : options_(options) {}
  absl::Status init();
  absl::Status init_context();
  absl::Status init_worker();
  void run();
  bool run_tasks();
  void run_timers();
  void sleep();
  void finish();
  static ucs_status_t on_active_message(void* engine, const void* header, std::size_t header_size,
                                        void* data, std::size_t size_bytes,
                                        const ucp_am_recv_param_t* param);
  static void on_error(void* endpoint, ucp_ep_h handle, ucs_status_t status);
  static void on_closed(void* request, ucs_status_t status, void* endpoint);
  static void on_sent(void* request, ucs_status_t status, void* operation);
  static void on_received(void* request, ucs_status_t status, std::size_t size_bytes,
                          void* operation);
  Operation* begin(OnEnd on_end);
  enum class State { kWhole, kBroken };
  void disconnect(UcxEndpoint* endpoint, State state);
  void on_broken(UcxEndpoint* endpoint, const absl::Status& status);
  static void end(ucs_status_ptr_t request, Operation* operation);

  const UcxOptions options_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int worker_events_ = -1;
  FileDescriptor wake_;
  std::string worker_address_;
  std::thread thread_;

  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);

  // Of the thread.
  std::map<Timer, Task> timers_;
  std::uint64_t last_timer_ = 0;
  absl::flat_hash_map<UcxToken, std::weak_ptr<UcxReceiver>> receivers_;
  absl::flat_hash_map<Operation*, std::unique_ptr<Operation>> operations_;
  absl::flat_hash_map<std::string, UcxEndpoint*> by_address_;
  /// With those that are being closed.
  absl::flat_hash_map<UcxEndpoint*, std::unique_ptr<UcxEndpoint>> endpoints_;
};

}  // namespace sinew::internal
