#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sinew/rref/internal/ledger.h"
#include "sinew/tests/rref/support/simulation.h"
#include "sinew/tests/rref/support/simulation_random.h"

namespace sinew::internal::ledger {

/// A job's workers in virtual time: processes with their ledgers, handles and control channels, the
/// network between them, leases, and the invariants, which are judged after every change. What the
/// programs on it do is up to SimulatedPrograms.
class SimulatedCluster {
 public:
  static constexpr Time kProgramEnds = std::chrono::seconds(70);
  static constexpr Time kAllQuiet = std::chrono::seconds(230);

  /// One local handle in a simulated program.
  struct Handle {
    Role role = Role::kUser;
    RRefId rref;
    ForkId fork;
    bool waiting = false;  // for Confirmed or Failed
    bool failed = false;
    int uses = 0;  // under way: the handle must stay
  };

  struct Link {
    /// Control messages that the peer has not got, as far as is known here.
    std::set<std::uint64_t> unheard;
    bool ended = false;
    Time last_answered_beat{0};  // of the peer, by us
    Time last_proven{0};         // when we sent the last beat that the peer answered

    explicit Link(Time now) : last_answered_beat(now), last_proven(now) {}
    /// Drops everything, now and later.
    void end() {
      ended = true;
      unheard.clear();
    }
  };

  /// One process of a worker.
  struct Node {
    WorkerInfo info;
    bool alive = true;
    bool leaving = false;
    Ledger ledger;
    std::map<int, Link> links;      // by node number of the peer
    std::map<int, Handle> handles;  // by handle number
    std::map<RRefId, std::uint64_t> values;
    std::set<RRefId> entries;  // made here and not destroyed yet

    Node(WorkerInfo who, LedgerOptions options)
        : info(who), ledger(std::move(who), std::move(options)) {}
  };

  struct Call {
    int from = -1;
    int to = -1;
    Time deadline{0};
    bool open = true;  // the caller still waits
    std::vector<ForkId> carried;
  };

  /// A message with references that will arrive in time.
  struct UnderWay {
    int from;
    int to;
    std::vector<ForkRecord> records;
    int answers = -1;  // the call that these are results of
  };

  /// Three or four workers that have just started, and a network as bad as the seed says.
  explicit SimulatedCluster(std::uint64_t seed);
  SimulatedCluster(const SimulatedCluster&) = delete;
  SimulatedCluster& operator=(const SimulatedCluster&) = delete;

  // --- Virtual time and network ---

  Time now() const { return now_; }
  void at(Time time, std::function<void()> what);
  /// Lets happen what is due until `end`, or until an invariant breaks.
  void run_until(Time end);
  /// Hands `arrive` to a live receiver, some time later, perhaps twice, perhaps never. Returns when
  /// the last copy arrives, or nothing.
  std::optional<Time> transmit(int from, int to, const std::function<void()>& arrive);
  /// How a link carries a message: once, as soon as the network lets one try through, and any later
  /// one may come first. Never if the receiver dies before, or when a further try is due and the
  /// sender is dead or does not want it any more.
  void convey(int from, int to, std::function<bool()> wanted, std::function<void()> arrive);
  /// From now on nothing is lost, repeated or slow.
  void heal();

  // --- Processes, leases ---

  Node& node(int number) { return *nodes_[static_cast<std::size_t>(number)]; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  /// One that is alive and does not leave; -1 if there is none.
  int some_node();
  int other_node(int number);
  void partition();
  void crash();
  void begin_leave();
  /// Ends leases that are over; done before anything else happens at a worker.
  void check_leases(int number);
  /// The holder's rule: it counts from when it *sent* the last beat that was answered.
  bool fenced_by_time(int holder, int owner);

  // --- Ledgers and handles ---

  void perform(int number, const Actions& actions);
  void perform(int number, const Handled& handled) { perform(number, handled.actions); }
  std::map<int, Handle>::iterator release(int number, std::map<int, Handle>::iterator handle);
  void drop_handles(int number);

  // --- What programs and invariants both know of ---

  SimulationRandom& random() { return random_; }
  SimulationReport& report() { return report_; }
  void violate(const std::string& what);
  std::vector<Call>& calls() { return calls_; }
  std::map<std::uint64_t, UnderWay>& under_way() { return under_way_; }
  static Description described() { return Description{"T", "simulation"}; }
  void judge_the_end();

 private:
  struct Event {
    Time time;
    std::uint64_t order;
    std::shared_ptr<std::function<void()>> what;
    bool operator<(const Event& other) const {
      return std::tie(other.time, other.order) < std::tie(time, order);
    }
  };

  bool cut(int from, int to) const;
  int start_node(int name);
  void beat(int number);
  void answer_beat(int number, int peer, Time sent);
  void tick(int number);
  void try_to_leave(int number);
  bool is_unheard(int number, int peer, std::uint64_t id);
  void on_control(int number, int peer, std::uint64_t id, const LedgerMessage& message);
  void post(int number, const Send& send);
  bool trusting(int holder, int owner);
  void judge_holders(int changed);
  void judge_records_under_way(const RRefId& destroyed, int owner);

  SimulationRandom random_;
  SimulationReport report_;
  int drop_percent_ = 0;
  int duplicate_percent_ = 0;
  int slow_percent_ = 0;
  bool healed_ = false;
  Time now_{0};
  std::uint64_t order_ = 0;
  std::uint64_t last_message_ = 0;
  std::priority_queue<Event> queue_;
  std::vector<std::unique_ptr<Node>> nodes_;  // every process that ever was, by incarnation
  std::map<std::pair<int, int>, Time> cuts_;
  std::vector<Call> calls_;
  std::map<std::uint64_t, UnderWay> under_way_;
};

}  // namespace sinew::internal::ledger
