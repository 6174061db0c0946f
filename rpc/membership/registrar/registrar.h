#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "sinew/link.pb.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/membership/registrar/registry_channel.h"
#include "sinew/rpc/membership/registrar/registry_codec.h"
#include "sinew/rpc/membership/registry/registry_table.h"
#include "sinew/rpc/membership/scheduler.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// Holds a job's list: carries what others ask to the table, and what it answers back. Of a worker,
/// or of a process that is nothing else. On the thread of the scheduler's runner, but for accept().
class Registrar : public std::enable_shared_from_this<Registrar> {
 public:
  using OnOwn = std::function<void(const SaidByRegistrar&)>;

  /// `on_own` takes what the worker is told that it is a part of, on the runner; null: there is
  /// none.
  Registrar(const registry::Options& options, SelfDescription self, Transport& transport,
            Scheduler& scheduler, OnOwn on_own);
  void start();
  /// Requests are not answered any more. `then` runs when all have received the last messages, soon
  /// in any case.
  void close(std::function<void()> then);

  /// A connection of one that asks for the registrar. Thread-safe; never blocks.
  absl::StatusOr<Acceptor::Accepted> accept(const proto::Hello& said);
  void ask_as_own(const AskedOfRegistrar& asked);
  void on_process_ended(Incarnation worker, const std::string& reason);

 private:
  /// A worker that has opened a connection.
  struct Asker {
    std::string name;
    /// Null: it is down.
    std::shared_ptr<RegistryChannel> channel;
    /// Of the connection: the end of an old one is not that of a new one.
    std::uint64_t number = 0;
    /// Of one that is down, where the kernel has said so.
    std::shared_ptr<const ProcessHold> process;
    registry::Time heard{};
    /// The number of its latest question.
    std::uint64_t asked = 0;
    registry::Time down_since{};
    registry::Time next_probe{};
  };
  template <class Work>
  void post(Work work) {
    scheduler_.runner()->post([weak = weak_from_this(), work = std::move(work)]() mutable {
      if (const auto self = weak.lock(); self != nullptr) work(*self);
    });
  }
  registry::Time now() const { return scheduler_.now().time_since_epoch(); }
  RegistryChannel::Events events_of(const WorkerInfo& asker, std::uint64_t number);
  void take(const WorkerInfo& asker, const std::string& message);
  void note_asked(Incarnation asker, std::uint64_t number);
  void note_down(Incarnation asker, std::uint64_t number,
                 std::shared_ptr<const ProcessHold> process);
  void tick();
  void look_at_processes();
  void look_at_addresses();
  void forget_strangers();
  void end();
  void deliver(const registry::Effects& effects);
  bool has_connection(Incarnation member);
  void probe(Incarnation member);
  void say(Incarnation to, SaidByRegistrar said);

  const registry::Options options_;
  const SelfDescription self_;
  Transport& transport_;
  Scheduler& scheduler_;
  const OnOwn on_own_;
  registry::RegistryTable table_;

  Mutex mutex_;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Incarnation, Asker> askers_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t connections_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Set: it ends when there is no connection any more.
  std::function<void()> on_closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
