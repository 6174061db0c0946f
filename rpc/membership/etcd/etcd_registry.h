#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rpc/base/boot_clock.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/membership_state.h"
#include "sinew/rpc/membership/etcd/etcd_client.h"
#include "sinew/rpc/membership/etcd/etcd_gathers.h"
#include "sinew/rpc/membership/etcd/etcd_list.h"
#include "sinew/rpc/membership/etcd/layout.h"
#include "sinew/rpc/membership/etcd/places.h"
#include "sinew/rpc/membership/registry.h"

namespace sinew::internal::etcd {

/// A worker's side of the registry, where that is etcd: joining, the lease, the list, gathers,
/// keys. Functions are thread-safe; callbacks run on the client's thread.
class EtcdRegistry final : public Registry {
 public:
  struct Options {
    Wanted wanted;
    /// Of keys; without a slash at its end.
    std::string prefix;
    /// Whole seconds, two at least.
    Time lease = std::chrono::seconds(15);
    /// A job whose members' keys are all gone is founded anew only if they stay away for so long.
    Time settle = std::chrono::seconds(2);
    Time judge = std::chrono::seconds(1);
    Time join_for = std::chrono::seconds(60);
    Time leave_for = std::chrono::seconds(2);
  };
  /// Joins. kInvalidArgument: the options.
  static absl::StatusOr<std::unique_ptr<EtcdRegistry>> start(std::unique_ptr<EtcdClient> client,
                                                             Options options, Listener listener);
  /// Says no goodbye: the lease ends by itself. Not on the client's thread.
  ~EtcdRegistry() override;

  View view() const override;
  void leave() override;
  void give_up(Time patience) override;
  void when_sure(Time patience, std::function<void()> then) override;
  void report_lost(Incarnation member, std::string reason, bool has_ended) override;
  /// While etcd is away those that name workers fail at once; those of all members, for the end of
  /// a job, outlast that for kOutlast leases.
  static constexpr int kOutlast = 20;
  void gather(const std::string& key, std::vector<std::string> names, std::string value,
              Time timeout, OnGathered then) override;
  void end_gathers_with(const std::string& worker, absl::Status why) override;
  void end_gathers(absl::Status why, std::function<void()> then) override;

 private:
  EtcdRegistry(std::unique_ptr<EtcdClient> client, Options options, Listener listener);
  static Time now() { return BootClock::system().now().time_since_epoch(); }
  Incarnation self() const { return options_.wanted.self.worker.incarnation; }
  bool is_over() const {
    return state_ == MembershipState::kEvicted || state_ == MembershipState::kLeft;
  }
  bool is_in() const {
    return state_ == MembershipState::kMember || state_ == MembershipState::kSuspected;
  }
  absl::Status not_in() const;
  // Joining.
  void grant(std::function<void()> then);
  void look();
  void looked(const absl::StatusOr<pb::TxnResponse>& seen);
  void look_soon(std::string why);
  void ask_holder(const Held& held);
  void claim(const Claim& claim);
  void load();
  void watch(std::int64_t from_revision);
  void admit();
  void fail_join(absl::Status why);
  Time left() const { return join_until_ - now(); }
  // Being in.
  void renew();
  void ask_until_sure(Time until, std::function<void()> then);
  void renewed(Time sent, std::int64_t lease, absl::StatusOr<pb::LeaseKeepAliveResponse> answer);
  void tick();
  void handle(ListEffects effects);
  void handle(SelfGone gone);
  void come_back();
  void come_back_soon();
  void write_keys_again(bool founds);
  void came_back(const pb::TxnResponse& seen, bool founds);
  void say(const SayGone& gone);
  void set_state(MembershipState state, absl::Status why);
  void publish();

  std::unique_ptr<EtcdClient> owned_client_;
  EtcdClient& client_;
  const Options options_;
  const Listener listener_;
  const Layout layout_;

  mutable Mutex mutex_;
  View view_ ABSL_GUARDED_BY(mutex_);

  // Of the client's thread.
  MembershipState state_ = MembershipState::kJoining;
  bool leaves_ = false;
  bool has_claimed_ = false;
  bool comes_back_ = false;
  /// `lease_` is one with which it has not come back yet.
  bool has_return_lease_ = false;
  /// Why it is kSuspected.
  absl::Status away_;
  Time away_since_{};
  std::int64_t lease_ = 0;
  /// When it was asked for.
  Time lease_sent_{};
  Time join_until_{};
  std::string why_waits_;
  /// etcd was, while this worker joins.
  bool was_away_ = false;
  EmptyJob empty_;
  HolderWatch holder_;
  EtcdClient::WatchId watch_ = 0;
  /// The value of `list/job` when it joined: another one is another job.
  std::string job_;
  std::optional<EtcdList> list_;
  EtcdGathers gathers_;
};

}  // namespace sinew::internal::etcd
