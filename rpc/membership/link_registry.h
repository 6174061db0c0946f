#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/membership/contact.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/registrar.h"
#include "sinew/rpc/membership/registrar_seat.h"
#include "sinew/rpc/membership/registry.h"
#include "sinew/rpc/membership/registry/registry_client.h"
#include "sinew/rpc/membership/registry_membership.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// A registry whose list is held by one of the workers, or by a process that is nothing else: asked
/// over this worker's links. This worker holds it itself where the seat is its own.
class LinkRegistry final : public Registry, public std::enable_shared_from_this<LinkRegistry> {
 public:
  /// Adds its control methods: before the worker accepts. The plane and the scheduler must outlive
  /// the executor's shutdown.
  static std::shared_ptr<LinkRegistry> make(ControlPlane& plane, Scheduler& scheduler,
                                            std::unique_ptr<RegistrarSeat> seat);

  struct Options {
    registry::ClientOptions client;
    /// Where this worker becomes registrar; who that is, is set here.
    registry::Options table;
    /// It may hold the list before it is a member.
    bool founds = false;
    /// Who answers there, and what that one's list says of this worker: also where no link with it
    /// comes up any more.
    std::function<Future<MembershipOptions::Answerer>(const Contact&, const Standing&)> ask_address;
  };
  /// Joins. Once.
  void start(Options options, Listener listener);

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
  /// Somebody who wants to know whether this worker is in.
  struct Doubt {
    std::uint64_t heard = 0;
    Time until{};
    std::function<void()> then;
  };

  LinkRegistry(ControlPlane& plane, Scheduler& scheduler, std::unique_ptr<RegistrarSeat> seat)
      : plane_(plane), scheduler_(scheduler), seat_(std::move(seat)) {}
  template <class Work>
  bool post(Work work) {
    return scheduler_.runner()->post([weak = weak_from_this(), work = std::move(work)]() mutable {
      if (const auto self = weak.lock(); self != nullptr) work(*self);
    });
  }
  void after(Time pause, void (LinkRegistry::*work)());
  Time now() const { return scheduler_.now().time_since_epoch(); }
  bool is_over() const;
  Incarnation self() const { return options_.client.self.worker.incarnation; }

  void add_methods();
  Future<std::string> serve(const WorkerInfo& from, const std::string& body);
  Future<std::string> take_news(const WorkerInfo& from, const std::string& body);
  void tick();
  // The registrar.
  void look();
  void found(const RegistrarSeat::Found& found);
  void dial(const std::vector<Contact>& contacts);
  void dialled(const Contact& contact, const absl::StatusOr<SaidByRegistrar>& said);
  /// Whoever answers there may have put this worker off its list.
  void ask_standing(const Contact& contact);
  void look_again();
  void become_registrar(bool is_new);
  void lose_registrar();
  // What the client wants, and hears.
  void run(registry::ClientEffects effects);
  void ask(const registry::Ask& ask);
  void hear(const SaidByRegistrar& said);
  void change_state(const registry::StateNews& news);
  void publish();
  void settle_doubts();
  void end_seat();
  void leave_now();
  std::vector<std::uint64_t> gathers_with(const std::string& worker) const;
  void cancel(std::uint64_t id, const absl::Status& why);

  ControlPlane& plane_;
  Scheduler& scheduler_;
  const std::unique_ptr<RegistrarSeat> seat_;

  mutable Mutex mutex_;
  View view_ ABSL_GUARDED_BY(mutex_);

  // Of the runner.
  Options options_;
  Listener listener_;
  bool is_silent_ = false;
  std::optional<registry::RegistryClient> client_;
  std::shared_ptr<Registrar> registrar_;
  /// Who answers, and where; none: nobody does.
  Incarnation connected_;
  Contact contact_;
  bool looks_ = false;
  std::size_t dials_ = 0;
  std::uint64_t heard_ = 0;
  std::optional<Time> leaves_at_;
  std::map<std::uint64_t, Gathering> gathers_;
  std::vector<Doubt> doubts_;
};

/// A worker's part in a job whose list one of the workers holds. `lease`: who is not heard for so
/// long is lost; `beat`: how often this worker is heard.
MembershipAndGather make_link_membership(MembershipOptions options, std::chrono::nanoseconds lease,
                                         std::chrono::nanoseconds beat,
                                         std::unique_ptr<RegistrarSeat> seat, ControlPlane& plane,
                                         Directory& directory, Scheduler& scheduler);

}  // namespace sinew::internal
