#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/gone.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/membership/job_instance.h"

/// What the members of a job and its registrar say to each other, as data: the mapping to the wire
/// lives elsewhere. Rules: docs/adr/0055-one-registry.md.
namespace sinew::internal::registry {

/// Since any moment that the caller chooses; never sent.
using Time = std::chrono::nanoseconds;

/// Which list of members: each change counts one. A registrar begins an epoch above all that it is
/// told of, so that epochs never go back. Only the numbers of one registrar have an order.
struct Version {
  std::uint64_t epoch = 0;
  Incarnation registrar;
  std::uint64_t count = 0;
};
/// Epochs stop there, so that a false epoch does no harm to others.
inline constexpr std::uint64_t kLastEpoch = std::uint64_t{1} << 62;

/// A member as it describes itself.
struct Record {
  WorkerInfo worker;
  /// For its peers: where it is reached, what it can do. Not read here.
  std::string details;
};

// --- What a worker asks. Any of it is a beat. ---------------------------------------------------

/// For a place. Repeated with each beat until it is answered.
struct Join {
  /// Rank -1: any.
  Record self;
  std::string job;
  /// 0: open membership.
  std::int32_t world_size = 0;
};

/// A member has found another registrar than the one that it knew. Repeated as a Join is.
struct Return {
  Record self;
  std::string job;
  std::int32_t world_size = 0;
  JobInstance instance;
  /// Of the list that it has, and of the first list that had it.
  Version version;
  Version joined;
  /// The others of its list.
  std::vector<WorkerInfo> known;
};

struct Renew {
  /// Of the list that it has.
  Version version;
};

/// Also takes back a join.
struct Leave {
  /// Without having come to rest: the others take it for lost.
  bool is_abrupt = false;
};

/// "My link with that member has ended permanently."
struct Report {
  Incarnation about;
  std::string reason;
};

/// Joins in a gather. Repeated with each beat.
struct Enter {
  /// Of the sender's requests.
  std::uint64_t id = 0;
  /// Tells gathers of one set apart.
  std::string key;
  /// Sorted, each once, with the sender's. None: all who are on the list when it completes.
  std::vector<std::string> names;
  std::string value;
};

/// The sender does not ask for that gather any more: it has its answer, or has given up.
struct Cancel {
  std::uint64_t id = 0;
};

using Request = std::variant<Join, Return, Renew, Leave, Report, Enter, Cancel>;

// --- What the registrar answers -----------------------------------------------------------------

/// All members, by rank.
struct List {
  Version version;
  JobInstance instance;
  std::vector<Record> members;
  /// Members may still come back to this registrar: one that is missing here is not lost yet.
  bool is_returning = false;
};

/// One step from a list to the next one.
struct Change {
  /// Joined, or gone. Neither (no incarnation): the time to come back is over.
  Record member;
  std::optional<Gone> gone;
  std::string reason;
};

/// The changes that make list `version` of list `since`.
struct Update {
  std::uint64_t since = 0;
  Version version;
  std::vector<Change> changes;
};

/// Nothing is new.
struct Renewed {
  Version version;
};

/// A join or a return waits; a worker that repeats it goes on waiting.
struct Wait {
  std::string why;
};

/// Answer at once: another worker asks for this member's name or rank.
struct Probe {};

/// This registrar does not know the asker, and takes members back: Return.
struct ComeBack {};

/// A join that has failed.
struct Refused {
  absl::Status why;
};

/// The asker is no member, permanently.
struct Out {
  Gone why = Gone::kUnknown;
  std::string reason;
};

/// A gather has ended. Values in the order of the names.
struct Finished {
  std::uint64_t id = 0;
  absl::Status status;
  std::vector<std::string> values;
};

/// A gather waits for these.
struct Missing {
  std::uint64_t id = 0;
  std::string names;
};

using Answer =
    std::variant<List, Update, Renewed, Wait, Probe, ComeBack, Refused, Out, Finished, Missing>;

/// Of a gather: the registrar does not answer, which says nothing of the others. They may wait, so
/// the same gather is to be tried again.
inline absl::Status away_error(absl::string_view text) {
  absl::Status status = absl::UnavailableError(text);
  status.SetPayload("sinew.registry.away", absl::Cord());
  return status;
}
inline bool is_away(const absl::Status& status) {
  return status.GetPayload("sinew.registry.away").has_value();
}

/// What a worker hears of another one: it is in, or gone.
struct MemberNews {
  Record member;
  std::optional<Gone> gone;
  std::string reason;
};

// --- What the registrar's shell does for the table ----------------------------------------------

struct Send {
  /// One or many.
  std::vector<Incarnation> to;
  /// Number of the input that this answers. Its receiver sends the latest that it has had with each
  /// request: so the registrar knows what a request was sent after.
  std::uint64_t token = 0;
  Answer answer;
};
using Effects = std::vector<Send>;

/// Bounds of what a table keeps for others; what is beyond them is refused.
struct Limits {
  std::size_t members = 65536;
  std::size_t waiting = 65536;
  /// Names that those who come back bring, together.
  std::size_t named = 1 << 20;
  std::size_t details_bytes = 65536;
  std::size_t reason_bytes = 1024;
  /// Departures and changes that are remembered.
  std::size_t gone = 4096;
  std::size_t log = 4096;
  std::size_t key_bytes = 1024;
  // 1 MiB of the caller, and what this library adds.
  std::size_t value_bytes = (1 << 20) + 1024;
  /// Of each member: reports, gathers, and bytes in them.
  std::size_t reports_each = 4096;
  std::size_t gathers_each = 1024;
  std::size_t bytes_each = 64 << 20;
};

struct Options {
  /// The registrar itself, and the worker that it is a part of; none: it is a program of its own.
  Incarnation registrar;
  Incarnation own_worker;
  std::string job;
  /// 0: open membership.
  std::int32_t world_size = 0;
  /// Of a job that is founded here.
  JobInstance instance;
  Time lease = std::chrono::seconds(15);
  /// For so long no new worker is admitted, unless all have returned before. 0 where none can
  /// return.
  Time settle = std::chrono::seconds(1);
  /// How long two members that have lost each other are looked at.
  Time judge = std::chrono::seconds(1);
  /// How often tick() is called, at least. What is missing to that is no time for the leases.
  Time tick = std::chrono::milliseconds(250);
  Limits limits;
};

}  // namespace sinew::internal::registry
