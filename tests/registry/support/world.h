#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sinew/rpc/membership/registry/registry_client.h"
#include "sinew/rpc/membership/registry/registry_table.h"

namespace sinew::internal::registry {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr Time kLease = seconds(4);
inline constexpr Time kBeat = milliseconds(500);
inline constexpr Time kTick = milliseconds(100);
inline constexpr Time kSettle = milliseconds(600);
inline constexpr Time kJoinFor = seconds(20);
inline constexpr Time kLeaveFor = seconds(1);
inline constexpr Time kGatherFor = seconds(6);
inline constexpr Time kDial = milliseconds(150);

struct Setup {
  int workers = 3;
  /// All must come; 0: they come and go.
  int world_size = 0;
  /// The registrar is a program of its own; otherwise it ends and stops with worker 0.
  bool is_alone = false;
  /// The registrar knows at once that a process has ended.
  bool has_proofs = true;
  /// Who is lost to another one learns it from that one, over the link that they had.
  bool both_notice = true;
  /// The last worker has the name and rank of the one before it, and starts when that one has been
  /// away for a lease.
  bool has_twin = false;
  /// So many of the last workers are liars once they are in; the one after them never joins.
  int liars = 0;
  bool has_guest = false;
};

/// Of a list, in whatever order.
std::uint64_t fingerprint_of(const std::vector<WorkerInfo>& workers);

/// Workers and their registrar in virtual time, with what happens between them, and a judge of:
///
///  J1  lists of one {epoch, registrar, count} are equal, wherever they are;
///  J2  versions never go back;
///  J3  nobody whom the registrar has heard within a lease of the time that it ran is put off, but
///      for what it said or did: it left, it ended, it has said of another one that it has lost it
///      or most say so of it, its place is another one's;
///  J4  names and ranks of a list differ; a fixed world begins with all;
///  J5  joins, gathers, waits and leaves end in time, with success or a text that names somebody;
///  J6  who gets the result of a gather gets the same one, and who still asks gets it too;
///  J7  who is told that it is out is so at once;
///  J8  after the last fault all lists are equal to the registrar's within a lease and two beats,
///      and have everybody who lives a lease later;
///  J10 liars put nobody off, bring nobody in, and change no list of anybody.
///
/// A value: a copy goes on from the same moment.
class World {
 public:
  explicit World(const Setup& setup);

  // --- Time ---
  Time now() const { return now_; }
  /// Everything that happens until then, unless a rule is broken.
  void run_until(Time end);
  /// The next thing that happens before `end`; false: none.
  bool step(Time end);
  /// What would happen next is a message, not a timer.
  bool is_message_next() const;
  const std::string& violation() const { return violation_; }
  void tell(bool tells) { tells_ = tells; }

  // --- Faults. Nodes are the workers, then the registrar if it is alone. ---
  int workers() const { return setup_.workers; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  bool is_alive(int node) const { return nodes_[index(node)].is_alive; }
  bool is_honest(int node) const {
    return node < setup_.workers - setup_.liars || node >= setup_.workers;
  }
  void kill(int node);
  void start(int node);
  void start_at(int node, Time when);
  void stop(int node, Time how_long);
  void cut(int from, int to, Time how_long);
  void leave(int node);
  /// The next message is lost, or late.
  void lose_next();
  void delay_next(Time how_long);
  /// From any liar or guest: to the registrar, or as if it were one.
  void lie(Incarnation liar, std::uint64_t echo, Request request);
  void lie_to(int node, Incarnation liar, std::uint64_t token, Answer answer);
  Incarnation guest() const { return Incarnation{kGuest}; }

  // --- What there is ---
  const RegistryTable* table() const { return table_.has_value() ? &*table_ : nullptr; }
  const RegistryClient* client(int node) const;
  Incarnation incarnation(int node) const { return nodes_[index(node)].incarnation; }
  Incarnation registrar() const { return registrar_; }
  Time last_fault() const { return last_fault_; }
  /// J8, and that all has ended.
  bool lists_agree() const;
  void judge_lists();
  void judge_end();

  struct Counts {
    std::size_t events = 0, joins = 0, evictions = 0, returns = 0, gathers = 0, gathers_done = 0,
                lies = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  static constexpr std::uint64_t kGuest = 999;

  struct Node {
    bool is_alive = false;
    Time runs_from{0};
    int life = 0;
    Incarnation incarnation;
    std::optional<RegistryClient> client;
    /// The registrar that its link leads to.
    Incarnation link;
    bool leaves = false;
    Time left{0};
    Version seen;
    std::int64_t period = -1;
    /// Gathers under way: id to key, with when they end at the latest.
    std::map<std::uint64_t, std::pair<std::string, Time>> gathers;
    bool was_away = false;
  };
  struct Timer {};
  struct Start {};
  struct ToTable {
    Incarnation from;
    Incarnation to;
    std::uint64_t echo = 0;
    Request request;
  };
  struct ToClient {
    Incarnation from;
    std::uint64_t token = 0;
    Answer answer;
  };
  struct Unlinked {
    Incarnation registrar;
  };
  struct LinkLost {
    Incarnation other;
  };
  struct ProcessEnded {
    Incarnation worker;
  };
  using What = std::variant<Timer, Start, ToTable, ToClient, Unlinked, LinkLost, ProcessEnded>;
  struct Event {
    int node = 0;
    int life = 0;
    std::shared_ptr<const What> what;
  };

  static std::size_t index(int node) { return static_cast<std::size_t>(node); }
  Node& at(int node) { return nodes_[index(node)]; }
  int host() const { return setup_.is_alone ? setup_.workers : 0; }
  int node_of(Incarnation worker) const;
  void post(int node, Time delay, What what);
  bool is_cut(int from, int to) const;
  void happen(int node, const What& what);
  void on_timer(int node);
  void dial(int node);
  void act(int node);
  void to_table(const ToTable& message);
  void end_run(int node);
  void take(Effects effects);
  void take(int node, ClientEffects effects);
  void state_changed(int node, const StateNews& news);
  void judge_end_of(int node);
  void judge_send(const Send& send);
  bool has_lost_or_is_lost(Incarnation who) const;
  void judge_changes(const Update& update);
  Time ran() const { return now_ - stood_still_; }
  void judge_client(int node);
  void judge_table();
  void judge_gather(int node, const Ended& end);
  void violate(std::string text);
  void say(const std::string& text) const;
  std::string name_of(int node) const;

  Setup setup_;
  Time now_{0};
  Time last_fault_{0};
  std::uint64_t serial_ = 0;
  std::uint64_t last_incarnation_ = 0;
  std::vector<Node> nodes_;
  std::map<std::pair<int, int>, Time> cuts_;
  std::map<std::pair<Time, std::uint64_t>, Event> events_;

  std::optional<RegistryTable> table_;
  Incarnation registrar_;
  int registrars_ = 0;
  bool was_complete_ = false;
  // What the judge knows.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> lists_;
  std::uint64_t judged_ = 0;
  /// By the time that the registrar ran.
  std::map<Incarnation, Time> heard_;
  Time registrar_began_{0};
  Time stood_still_{0};
  std::map<std::string, Time> gone_at_;
  std::set<Incarnation> told_out_;
  std::set<Incarnation> returned_;
  std::set<Incarnation> said_leave_;
  std::set<Incarnation> ended_;
  std::set<Incarnation> lives_;
  std::set<std::pair<Incarnation, Incarnation>> reports_;
  struct Result {
    Time when;
    std::vector<std::string> values;
  };
  std::map<std::string, Result> results_;
  std::string violation_;
  bool tells_ = false;
  Counts counts_;
};

}  // namespace sinew::internal::registry
