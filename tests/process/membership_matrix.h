#pragma once

// What becomes of a job of four workers when one of them is killed, stopped, started again or
// leaves: as data. docs/membership.md says the same in words ("What happens when").

namespace testmatrix {

/// Ranks are given, or workers come and go.
enum class World { kFixed, kOpen };
enum class Meet { kTcp, kFile, kRegistrar, kEtcd };
enum class Event {
  /// Killed, and not started again.
  kKill,
  /// Stopped for longer than its lease. When it goes on it learns that it is out, and starts a new
  /// worker under its name in the same process.
  kStop,
  /// Killed, and started again under its name at once.
  kRestart,
  /// Shut down: with grace in open membership, without in a fixed world, where grace would wait for
  /// all.
  kLeave,
};
/// To whom it happens. The workers are a, b, c and d, of ranks 0 to 3; c is the last one to join.
enum class Victim { kRankZero, kHighest, kNewest };

/// What depends on the way to meet.
struct ByMeet {
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr ByMeet(const char* both) : tcp(both), file(both) {}
  constexpr ByMeet(const char* over_tcp, const char* elsewhere) : tcp(over_tcp), file(elsewhere) {}
  constexpr const char* at(Meet meet) const { return meet == Meet::kTcp ? tcp : file; }

  const char* tcp;
  /// And by a registrar of its own, and at etcd.
  const char* file;
};

/// Codes are those of errors, "OK", or "-" for what nobody tries. Lists are "names with ranks, the
/// coordinator".
struct Row {
  World world;
  Event event;
  Victim victim;

  /// What had begun before: a survivor's call to the victim, whose answer it waits for, and a
  /// barrier of all to which only the victim has not come. (A graceful shutdown waits for calls.)
  const char* call_begun;
  const char* barrier_begun;
  /// What the survivors' lists say while the victim is away (or, started again, is back).
  ByMeet list;
  /// What survivors get then: calls by the victim's name, uses of what it owned, barriers of all on
  /// the list.
  const char* call;
  const char* use;
  const char* barrier;
  /// What a worker e gets that joins then, in a fixed world in the place of the victim.
  ByMeet newcomer;

  /// Of the victim's old worker, if its process lives: what it says of itself, what it gets for a
  /// call that had begun, and for calls, uses and barriers afterwards.
  const char* state;
  const char* own_call_begun;
  const char* own_call;

  /// All lists in the end.
  ByMeet end;
};

namespace matrix_rows {

constexpr World kFixed = World::kFixed;
constexpr World kOpen = World::kOpen;
constexpr Event kKill = Event::kKill;
constexpr Event kStop = Event::kStop;
constexpr Event kRestart = Event::kRestart;
constexpr Event kLeave = Event::kLeave;
constexpr Victim kZero = Victim::kRankZero;
constexpr Victim kHighest = Victim::kHighest;
constexpr Victim kNewest = Victim::kNewest;
constexpr const char* kOk = "OK";
constexpr const char* kUnav = "UNAVAILABLE";
constexpr const char* kGone = "NOT_FOUND";
constexpr const char* kNobodyThere = "DEADLINE_EXCEEDED";
constexpr const char* kEvicted = "evicted, does not run";
constexpr const char* kLeft = "left, does not run";

// clang-format off
constexpr Row kRows[] = {
    // What, to whom | begun: call, barrier | list, then call, use, barrier | newcomer |
    // of the victim: state, call begun, call | in the end
    {kFixed, kKill, kZero, kUnav, kUnav, "b1 c2 d3, b", kGone, kUnav, kOk, kOk,
     "-", "-", "-", "e0 b1 c2 d3, e"},
    {kFixed, kKill, kHighest, kUnav, kUnav, "a0 b1 c2, a", kGone, kUnav, kOk, kOk,
     "-", "-", "-", "a0 b1 c2 e3, a"},
    {kFixed, kKill, kNewest, kUnav, kUnav, "a0 b1 d3, a", kGone, kUnav, kOk, kOk,
     "-", "-", "-", "a0 b1 e2 d3, a"},
    {kFixed, kStop, kZero, kUnav, kUnav, "b1 c2 d3, b", kGone, kUnav, kOk, "-",
     kEvicted, "ABORTED", "ABORTED", "a0 b1 c2 d3, a"},
    {kFixed, kStop, kHighest, kUnav, kUnav, "a0 b1 c2, a", kGone, kUnav, kOk, "-",
     kEvicted, "ABORTED", "ABORTED", "a0 b1 c2 d3, a"},
    {kFixed, kStop, kNewest, kUnav, kUnav, "a0 b1 d3, a", kGone, kUnav, kOk, "-",
     kEvicted, "ABORTED", "ABORTED", "a0 b1 c2 d3, a"},
    {kFixed, kRestart, kZero, kUnav, kUnav, "a0 b1 c2 d3, a", kOk, kUnav, kOk, "-",
     "-", "-", "-", "a0 b1 c2 d3, a"},
    {kFixed, kRestart, kHighest, kUnav, kUnav, "a0 b1 c2 d3, a", kOk, kUnav, kOk, "-",
     "-", "-", "-", "a0 b1 c2 d3, a"},
    {kFixed, kRestart, kNewest, kUnav, kUnav, "a0 b1 c2 d3, a", kOk, kUnav, kOk, "-",
     "-", "-", "-", "a0 b1 c2 d3, a"},
    {kFixed, kLeave, kZero, kUnav, kUnav, "b1 c2 d3, b", kGone, kUnav, kOk, kOk,
     kLeft, "CANCELLED", "FAILED_PRECONDITION", "e0 b1 c2 d3, e"},
    {kFixed, kLeave, kHighest, kUnav, kUnav, "a0 b1 c2, a", kGone, kUnav, kOk, kOk,
     kLeft, "CANCELLED", "FAILED_PRECONDITION", "a0 b1 c2 e3, a"},
    {kFixed, kLeave, kNewest, kUnav, kUnav, "a0 b1 d3, a", kGone, kUnav, kOk, kOk,
     kLeft, "CANCELLED", "FAILED_PRECONDITION", "a0 b1 e2 d3, a"},

    // Over an address nobody can join while its rank 0 is gone. Rank 0 is that of who founds the job
    // and of who asks for it, so over a file nobody gets it again here.
    {kOpen, kKill, kZero, kUnav, kUnav, "b1 c2 d3, b", kGone, kUnav, kOk, {kNobodyThere, kOk},
     "-", "-", "-", {"b1 c2 d3, b", "b1 c2 d3 e4, b"}},
    {kOpen, kKill, kHighest, kUnav, kUnav, "a0 b1 c2, a", kGone, kUnav, kOk, kOk,
     "-", "-", "-", "a0 b1 c2 e3, a"},
    {kOpen, kKill, kNewest, kUnav, kUnav, "a0 b1 d3, a", kGone, kUnav, kOk, kOk,
     "-", "-", "-", "a0 b1 e2 d3, a"},
    // Who comes back gets a free rank, unless it asks for its own as rank 0 over an address does.
    {kOpen, kStop, kZero, kUnav, kUnav, "b1 c2 d3, b", kGone, kUnav, kOk, {kNobodyThere, kOk},
     kEvicted, "ABORTED", "ABORTED", {"a0 b1 c2 d3, a", "b1 c2 d3 e4 a5, b"}},
    {kOpen, kStop, kHighest, kUnav, kUnav, "a0 b1 c2, a", kGone, kUnav, kOk, kOk,
     kEvicted, "ABORTED", "ABORTED", "a0 b1 c2 e3 d4, a"},
    {kOpen, kStop, kNewest, kUnav, kUnav, "a0 b1 d3, a", kGone, kUnav, kOk, kOk,
     kEvicted, "ABORTED", "ABORTED", "a0 b1 e2 d3 c4, a"},
    {kOpen, kRestart, kZero, kUnav, kUnav, {"a0 b1 c2 d3, a", "b1 c2 d3 a4, b"}, kOk, kUnav, kOk,
     kOk, "-", "-", "-", {"a0 b1 c2 d3 e4, a", "b1 c2 d3 a4 e5, b"}},
    {kOpen, kRestart, kHighest, kUnav, kUnav, "a0 b1 c2 d3, a", kOk, kUnav, kOk, kOk,
     "-", "-", "-", "a0 b1 c2 d3 e4, a"},
    {kOpen, kRestart, kNewest, kUnav, kUnav, "a0 b1 c2 d3, a", kOk, kUnav, kOk, kOk,
     "-", "-", "-", "a0 b1 c2 d3 e4, a"},
    {kOpen, kLeave, kZero, "-", kUnav, "b1 c2 d3, b", kGone, kUnav, kOk, {kNobodyThere, kOk},
     kLeft, "-", "FAILED_PRECONDITION", {"b1 c2 d3, b", "b1 c2 d3 e4, b"}},
    {kOpen, kLeave, kHighest, "-", kUnav, "a0 b1 c2, a", kGone, kUnav, kOk, kOk,
     kLeft, "-", "FAILED_PRECONDITION", "a0 b1 c2 e3, a"},
    {kOpen, kLeave, kNewest, "-", kUnav, "a0 b1 d3, a", kGone, kUnav, kOk, kOk,
     kLeft, "-", "FAILED_PRECONDITION", "a0 b1 e2 d3, a"},
};
// clang-format on

}  // namespace matrix_rows

using matrix_rows::kRows;

}  // namespace testmatrix
