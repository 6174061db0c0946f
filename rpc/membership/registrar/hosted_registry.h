#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/membership/contact.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/membership/registrar/registrar.h"
#include "sinew/rpc/membership/registrar/registrar_seat.h"
#include "sinew/rpc/membership/registrar/registry_channel.h"
#include "sinew/rpc/membership/registry.h"
#include "sinew/rpc/membership/registry/registry_client.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// A registry whose list is held by one of the workers, or by a process that is nothing else: asked
/// by connections of its own. This worker holds it itself where the seat is its own.
class HostedRegistry final : public Registry, public std::enable_shared_from_this<HostedRegistry> {
 public:
  struct Options {
    registry::ClientOptions client;
    /// Where this worker becomes registrar; who that is, is set here.
    registry::Options table;
    /// It may hold the list before it is a member.
    bool founds = false;
    SelfDescription self;
  };
  /// Joins. The transport and the scheduler must outlive the executor's shutdown.
  static std::shared_ptr<HostedRegistry> start(Options options, Listener listener,
                                               Transport& transport, Scheduler& scheduler,
                                               std::unique_ptr<RegistrarSeat> seat);
  /// A connection of one that asks for the registrar. Never blocks.
  absl::StatusOr<Acceptor::Accepted> accept(const proto::Hello& said) const;

  View view() const override;
  void leave() override;
  void give_up(Time patience) override;
  void when_sure(Time patience, std::function<void()> then) override;
  void report_lost(Incarnation member, std::string reason, bool has_ended) override;
  void gather(const std::string& key, std::vector<std::string> names, std::string value,
              Time timeout, OnGathered then) override;
  void end_gathers_with(const std::string& worker, absl::Status why) override;
  void end_gathers(absl::Status why, std::function<void()> then) override;

 private:
  struct Gathering {
    std::vector<std::string> names;
    OnGathered then;
  };
  struct Dial {
    Contact contact;
    std::shared_ptr<RegistryChannel> channel;
  };
  /// A client that wants to know whether this worker is a member.
  struct Doubt {
    /// The question whose answer it waits for.
    std::uint64_t asked = 0;
    Time until{};
    std::function<void()> then;
  };

  HostedRegistry(Options options, Listener listener, Transport& transport, Scheduler& scheduler,
                 std::unique_ptr<RegistrarSeat> seat);
  template <class Work>
  bool post(Work work) {
    return scheduler_.runner()->post([weak = weak_from_this(), work = std::move(work)]() mutable {
      if (const auto self = weak.lock(); self != nullptr) work(*self);
    });
  }
  void after(Time pause, void (HostedRegistry::*work)());
  Time now() const { return scheduler_.now().time_since_epoch(); }
  bool is_over() const;
  Incarnation self() const { return options_.client.self.worker.incarnation; }
  bool is_registrar() const { return registrar() != nullptr; }
  std::shared_ptr<Registrar> registrar() const;

  void tick();
  // The registrar.
  void look();
  void found(const RegistrarSeat::Found& found);
  void dial(const Contact& contact);
  RegistryChannel::Events events_of(std::uint64_t number);
  /// Those that were begun before that one.
  void end_dials_before(std::uint64_t number);
  void end_dials();
  void on_up(std::uint64_t number, Incarnation registrar);
  void on_down(std::uint64_t number, const absl::Status& reason);
  void note_failure(const absl::Status& why);
  void look_again();
  void become_registrar(bool is_new);
  void check_seat();
  void lose_registrar();
  // What the client wants, and hears.
  void run(registry::ClientEffects effects);
  void ask(const registry::Ask& ask);
  void hear(const SaidByRegistrar& said);
  void change_state(const registry::StateNews& news);
  void publish();
  void settle_doubts();
  void end_channels();
  /// `then` runs when the others have heard what this worker said last as registrar.
  void end_seat(std::function<void()> then = [] {});
  void leave_now();
  std::vector<std::uint64_t> gathers_with(const std::string& worker) const;
  void cancel(std::uint64_t id, const absl::Status& why);

  const Options options_;
  const Listener listener_;
  Transport& transport_;
  Scheduler& scheduler_;
  const std::unique_ptr<RegistrarSeat> seat_;
  /// Proves to registrars that its connections are the same worker's.

  mutable Mutex mutex_;
  View view_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Registrar> registrar_ ABSL_GUARDED_BY(mutex_);

  // Of the runner.
  bool is_silent_ = false;
  registry::RegistryClient client_;
  absl::Status over_because_;
  /// The incarnation that answers; none: there is no answer.
  Incarnation connected_;
  /// To that one, where it is another worker; and connections that are being opened, by number.
  std::shared_ptr<RegistryChannel> channel_;
  std::uint64_t channel_number_ = 0;
  std::map<std::uint64_t, Dial> dials_;
  std::uint64_t next_dial_ = 1;
  bool looks_ = false;
  Time next_check_{};
  Time heard_at_{};
  /// Over the channel: questions, and the latest one that was answered.
  std::uint64_t asked_ = 0;
  std::uint64_t answered_ = 0;
  /// Waits for an answer to this worker's last word.
  std::shared_ptr<std::promise<void>> last_word_;
  std::optional<Time> leaves_at_;
  std::map<std::uint64_t, Gathering> gathers_;
  std::vector<Doubt> doubts_;
};

/// How a worker joins where the list is held by one of the workers, or by a registrar of its own.
struct HostedStart {
  StartRegistry start;
  /// Takes a connection of one that asks for the registrar; once the worker joins.
  std::function<absl::StatusOr<Acceptor::Accepted>(const proto::Hello& said)> accept;
};
/// `lease`: a member that is not heard for so long is lost; `beat`: how often this worker is heard.
HostedStart hosted_registry(const MembershipOptions& options, SelfDescription self,
                            std::chrono::nanoseconds lease, std::chrono::nanoseconds beat,
                            std::unique_ptr<RegistrarSeat> seat, Transport& transport,
                            Scheduler& scheduler);

}  // namespace sinew::internal
