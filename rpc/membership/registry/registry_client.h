#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/base/membership_state.h"
#include "sinew/rpc/membership/registry/paced_clock.h"
#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal::registry {

struct ClientOptions {
  /// Rank -1: any.
  Record self;
  std::string job;
  std::int32_t world_size = 0;
  /// For texts: where the registrar is looked for, what may be wrong if there is no answer, and
  /// what if others do not join.
  std::string address;
  std::string hint;
  std::string hint_for_all;
  Time beat = std::chrono::seconds(2);
  /// How long joining may take, and leaving.
  Time join_for = std::chrono::seconds(60);
  Time leave_for = std::chrono::seconds(2);
  /// How long gathers of a whole job wait while the registrar is away; others fail at once.
  Time away_for = std::chrono::minutes(5);
  /// How often tick() is called, at least.
  Time tick = std::chrono::milliseconds(250);
};

// --- What the client's shell does for it --------------------------------------------------------

/// To the registrar.
struct Ask {
  std::uint64_t echo = 0;
  Request request;
};
/// Of this worker itself. A join that failed ends in kLeft.
struct StateNews {
  MembershipState state;
  absl::Status why;
};
/// A gather has ended.
struct Ended {
  std::uint64_t id = 0;
  absl::Status status;
  std::vector<std::string> values;
};
using ClientEffects = std::vector<std::variant<Ask, MemberNews, StateNews, Ended>>;

/// A worker's side of the registry. It believes only the registrar that it has asked itself. While
/// that is away the list does not change. Pure; a value type; not thread-safe.
class RegistryClient {
 public:
  RegistryClient(ClientOptions options, Time now);

  /// A connection to the address is up, and that is who answers there.
  ClientEffects connected(Incarnation registrar, Time now);
  ClientEffects disconnected(Time now);
  ClientEffects handle(Incarnation from, std::uint64_t token, const Answer& answer, Time now);
  /// The registrar's lease: a worker that beats more rarely than that allows is lost there.
  void note_lease(Time lease);
  /// There was no answer, and why.
  void note_nobody(std::string why) { nobody_because_ = std::move(why); }
  /// The process at the address refuses this worker: its join has failed.
  ClientEffects refuse(const absl::Status& why, Time now);
  /// The link with a member has ended permanently.
  ClientEffects lost(Incarnation member, const std::string& reason, Time now);
  ClientEffects tick(Time now);

  /// Asks whether this worker is in still, at once.
  ClientEffects renew(Time now);

  /// The id is for Ended, and for cancel().
  std::uint64_t next_id() const { return next_id_; }
  ClientEffects gather(std::string key, std::vector<std::string> names, std::string value,
                       Time timeout, Time now);
  /// Ends a gather with `why`.
  ClientEffects cancel(std::uint64_t id, const absl::Status& why, Time now);
  /// Done with StateNews kLeft, within `leave_for` also without an answer.
  ClientEffects leave(Time now);

  MembershipState state() const { return state_; }
  const Version& version() const { return version_; }
  const JobInstance& instance() const { return instance_; }
  /// As the list says, and those who may still come back.
  const std::map<Incarnation, Record>& members() const { return members_; }
  bool is_awaited(Incarnation member) const { return awaited_.count(member) > 0; }
  /// This worker has lost it, whatever the list says.
  bool has_lost(Incarnation member) const { return lost_.count(member) > 0; }
  bool is_away() const { return is_away_; }

 private:
  struct Pending {
    Enter request;
    Time deadline;
    Time patience;
    /// Names whom it waits for.
    std::string missing;
  };

  bool is_over() const {
    return state_ == MembershipState::kEvicted || state_ == MembershipState::kLeft;
  }
  Incarnation self() const { return options_.self.worker.incarnation; }
  void ask(Request request, ClientEffects& out) const;
  void beat(ClientEffects& out);
  void ask_for_place(ClientEffects& out) const;
  void take(const List& list, ClientEffects& out);
  void take(const Update& update, ClientEffects& out);
  void apply(const Change& change, ClientEffects& out);
  void add(const Record& member, ClientEffects& out);
  void drop(Incarnation member, Gone why, const std::string& reason, ClientEffects& out);
  void finish(const Finished& end, ClientEffects& out);
  void be_out(const std::string& reason, ClientEffects& out);
  void go_away(ClientEffects& out);
  void fail_for_absence(bool all, ClientEffects& out);
  void end(std::uint64_t id, absl::Status status, std::vector<std::string> values,
           ClientEffects& out);
  void enter(MembershipState state, const absl::Status& why, ClientEffects& out);
  void time_out(ClientEffects& out);
  std::string why_late(const Pending& gather) const;
  std::string registrar_text() const;
  absl::Status absence() const;

  ClientOptions options_;
  PacedClock clock_;
  MembershipState state_ = MembershipState::kJoining;
  /// The incarnation that answers at the address; none: there is no answer.
  Incarnation registrar_;
  std::uint64_t echo_ = 0;
  Time heard_;
  Time beat_;
  Time next_beat_;
  Time ends_joining_;
  std::optional<Time> ends_leaving_;
  bool is_away_ = false;
  Time away_since_{};
  std::string waits_because_;
  std::string nobody_because_;

  Version version_;
  Version joined_;
  JobInstance instance_;
  std::map<Incarnation, Record> members_;
  std::set<Incarnation> awaited_;
  std::set<Incarnation> lost_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Pending> pending_;
};

}  // namespace sinew::internal::registry
