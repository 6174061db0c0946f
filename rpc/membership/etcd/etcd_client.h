#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/membership/etcd/endpoints.h"
#include "sinew/rpc/membership/etcd/etcd_errors.h"
#include "sinew/rpc/membership/etcd/etcd_methods.h"
#include "sinew/rpc/membership/etcd/etcd_options.h"
#include "sinew/rpc/membership/etcd/host_lookup.h"

namespace sinew::internal::etcd {

/// Calls etcd, on one thread of its own. One server of the cluster is asked at a time: the next one
/// when that fails, does not answer in `attempt_timeout`, or sees no leader. Where the time of a
/// call would not suffice for as many servers as can be away, the next one is asked sooner, and the
/// first answer counts. Calls are repeated until their time is over, so one may be served twice:
/// make idempotent requests, such as transactions with compares.
///
/// Thread-safe where nothing else is said. Callbacks run on its thread, and must not block.
class EtcdClient final : private ProcessLife::Busy {
 public:
  using Task = absl::AnyInvocable<void()>;
  template <class Response>
  using Then = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

  /// Does not connect yet. Errors as check() has them; kResourceExhausted: no thread.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> start(EtcdOptions options);
  /// Calls that are under way end with kCancelled. Not on its own thread.
  ~EtcdClient() override;
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  template <class Request>
  void call(Request request, Time timeout, Then<typename Method<Request>::Response> then) {
    using Response = typename Method<Request>::Response;
    start_call(Method<Request>::kPath, std::make_unique<Request>(std::move(request)),
               std::make_unique<Response>(), timeout,
               [then = std::move(then)](absl::Status status, Message& response) mutable {
                 if (!status.ok()) return then(std::move(status));
                 then(std::move(static_cast<Response&>(response)));
               });
  }

  struct Listing {
    std::vector<KeyValue> kvs;
    /// Of the store that has them.
    std::int64_t revision = 0;
  };
  /// All keys of a range, at one revision, in pages that are no larger than messages may be.
  void list(std::string key, std::string range_end, Time timeout, Then<Listing> then);

  struct Watcher {
    /// All events of one revision or of several, none left out or told twice.
    absl::AnyInvocable<void(const std::vector<Event>&)> on_events;
    /// It is over. kOutOfRange: etcd has compacted what was next, or lost what it had: list again.
    /// Others are for good, as with a call.
    absl::AnyInvocable<void(absl::Status)> on_end;
  };
  using WatchId = std::uint64_t;
  /// On its thread only, as the next three.
  WatchId watch(std::string key, std::string range_end, std::int64_t from_revision,
                Watcher watcher);
  void unwatch(WatchId id);
  void run_after(Time pause, Task task);
  /// The one that is asked at the moment.
  const std::string& endpoint() const { return endpoints_.current(); }

  /// Runs that on its thread, unless it is being destroyed.
  void post(Task task);

 private:
  using Clock = std::chrono::steady_clock;
  /// Who waits until a name is known looks so often.
  static constexpr std::chrono::milliseconds kLookUp{10};
  using Message = google::protobuf::MessageLite;
  using Done = absl::AnyInvocable<void(absl::Status, Message&)>;
  struct Tag;
  struct Call;
  struct Attempt;
  struct Watch;
  struct Stream;

  explicit EtcdClient(EtcdOptions options);
  // The thread.
  void run();
  bool wait();
  void run_tasks();
  void stop();
  gpr_timespec next_due() const;
  Tag* tag(absl::AnyInvocable<void(bool)> task);
  void look_up() override;
  bool stands_still() override;
  void wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls.
  void start_call(const char* path, std::unique_ptr<Message> request,
                  std::unique_ptr<Message> response, Time timeout, Done done);
  void attempt(std::shared_ptr<Call> call);
  void attempted(const std::shared_ptr<Call>& call, Attempt& attempt);
  void ask_next_too(const std::shared_ptr<Call>& call, Attempt& attempt);
  void end_call(const std::shared_ptr<Call>& call, absl::Status status);
  void list_page(std::shared_ptr<Listing> listing, pb::RangeRequest request,
                 Clock::time_point until, Then<Listing> then);
  // The server that is asked.
  /// Where its name leads is not known yet.
  bool looks_up();
  /// kUnavailable: its name cannot be resolved.
  absl::Status connect();
  void prepare(grpc::ClientContext& context, Clock::time_point deadline) const;
  /// `is_short`: what was known of it before says more.
  void failed(std::uint64_t generation, const absl::Status& why, bool is_short = false);
  void answered(std::uint64_t generation);
  absl::Status all_errors(const absl::Status& last) const;
  bool is_hopeless() const;
  bool needs_token() const { return has_users_ && !options_.user.empty() && token_.empty(); }
  void authenticate();
  void drop_token(const std::string& token);
  // Watches.
  void open(std::shared_ptr<Watch> watch);
  void read(std::shared_ptr<Watch> watch, std::shared_ptr<Stream> stream);
  bool take(Watch& watch, Stream& stream);
  void close(std::shared_ptr<Watch> watch, std::shared_ptr<Stream> stream);
  void closed(const std::shared_ptr<Watch>& watch, const Stream& stream);
  void end_watch(Watch& watch, absl::Status why);

  const EtcdOptions options_;
  const ProcessBound process_;
  std::thread thread_;
  grpc::CompletionQueue queue_;

  Mutex mutex_;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mutex_);
  bool is_awake_ ABSL_GUARDED_BY(mutex_) = true;
  bool works_ ABSL_GUARDED_BY(mutex_) = true;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;

  // Of the thread.
  bool has_stopped_ = false;
  bool is_shut_ = false;
  int pending_ = 0;
  std::multimap<Clock::time_point, Task> timers_;
  std::set<std::shared_ptr<Call>> calls_;
  std::set<grpc::ClientContext*> contexts_;
  std::map<WatchId, std::shared_ptr<Watch>> watches_;
  WatchId last_watch_ = 0;
  Endpoints endpoints_;
  std::shared_ptr<HostLookup> lookup_;
  /// Grows with each change of the server.
  std::uint64_t generation_ = 1;
  std::unique_ptr<grpc::TemplatedGenericStub<Message, Message>> stub_;
  Clock::time_point not_before_;
  /// Of each server since it answered last.
  std::map<std::string, absl::Status> errors_;
  std::string token_;
  bool has_users_ = true;
  bool authenticates_ = false;
  std::vector<Task> wait_for_token_;
};

}  // namespace sinew::internal::etcd
