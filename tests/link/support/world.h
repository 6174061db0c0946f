#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rpc/link/link.h"
#include "sinew/tests/link/support/link_inspector.h"
#include "sinew/tests/link/support/outbound.h"

/// Workers with their links, the network between them and the calls that they make, stepped by
/// hand. Exploration and simulation choose the steps.
namespace sinew::internal::link_model {

using Time = Link::TimePoint;
constexpr Time kBegin{std::chrono::hours(1)};

/// A call that somebody makes.
struct CallPlan {
  int from = 0;
  int to = 1;
  std::uint64_t bytes = 0;
  /// Its request has payloads that travel beside the lane.
  bool large = false;
  std::uint64_t reply_bytes = 0;
  bool large_reply = false;
  bool cancellable = false;
  /// The call whose handler makes this one and waits for it; -1: a program does.
  int within = -1;
};

/// What becomes of the connections that a worker opens.
enum class Reach : std::uint8_t { kAnybody, kSwallowed, kRefused };

/// What is the same for all workers.
struct Settings {
  int workers = 2;
  LinkLimits limits;
  LeaseTerms terms;
  /// By worker; a worker that is not named has `terms`, and a clock that keeps time.
  std::vector<LeaseTerms> own_terms;
  std::vector<double> clock_rates;
  /// By worker: whether what it opens reaches anybody.
  std::vector<Reach> reach;
  std::vector<CallPlan> calls;
  /// Handlers start and end at steps of their own, rather than as soon as their request has come.
  bool handlers_take_time = false;
  /// Who is linked with a worker that has died may get proof of that, at any time.
  bool proves_death = false;
  /// The end that accepts a connection is up at once, rather than when its opener is. Transports
  /// may do either.
  bool accepted_is_up = false;
  /// First attempts wait for a turn, which may come at any time.
  bool takes_turns = false;
  /// No turn ever comes: whoever waits for one is asked to come instead.
  bool asks_for_turns = false;
};

/// What is known of one frame of a call, by somebody who sees both ends.
struct FrameHistory {
  bool written = false;
  bool given_up = false;
  bool delivered = false;
  std::optional<FrameEnd> end;
};

struct Call {
  CallPlan plan;
  // The end of the link that makes it, and the one that serves it; -1: none so far.
  int maker = -1;
  int server = -1;
  FrameToken token = 0;
  /// How it ended for its maker.
  enum class Outcome : std::uint8_t {
    kNone,
    kReply,
    kCancelled,
    kDidNotRun,
    kLinkEnded,
    kUnreachable,
    kMakerDied
  };
  Outcome outcome = Outcome::kNone;
  enum class Handler : std::uint8_t { kNone, kQueued, kRunning, kDone };
  Handler handler = Handler::kNone;
  bool cancel_came = false;
  bool waits_for_nested = false;
  FrameHistory frames[3];

  bool started() const { return maker >= 0 || outcome != Outcome::kNone; }
  bool ended() const { return outcome != Outcome::kNone; }
  FrameHistory& frame(Outbound::Part part) { return frames[static_cast<int>(part)]; }
};

struct Packet {
  LinkHeader header;
  std::shared_ptr<Outbound> content;
  bool is_large() const { return content != nullptr && content->large; }
  std::uint64_t bytes() const { return content == nullptr ? 0 : content->bytes; }
};

/// How one end of a connection sees it.
enum class View : std::uint8_t { kNone, kOpening, kUp, kClosed };

struct Connection {
  ConnectionName name;
  // By view: 0 opened it, 1 accepted it.
  int ends[2] = {-1, -1};
  View views[2] = {View::kOpening, View::kNone};
  int to_worker = 0;
  Incarnation expected;
  /// kJoin: up at its opener, whose next packet brings it up at the other end.
  enum class Phase : std::uint8_t { kHello, kAnswer, kRefusal, kJoin, kMade };
  Phase phase = Phase::kHello;
  LinkHello hello;
  LinkHello answer;
  DownCause cause = DownCause::kBroken;
  Refusal refusal = Refusal::kNone;
  bool broken = false;
  /// Swallows everything, and tells nobody.
  bool black = false;
  // To each view.
  std::deque<Packet> lanes[2][kLaneCount];
  std::vector<Packet> payloads[2];

  bool is_gone() const {
    return views[0] == View::kClosed && (views[1] == View::kClosed || views[1] == View::kNone);
  }
};

/// One end of one link.
struct End {
  End(int of, int towards, const Link::Options& options, Time now)
      : worker(of), peer_worker(towards), link(options, now) {}
  int worker;
  int peer_worker;
  Link link;
  // The connection that is up, as the shell knows it.
  ConnectionName up;
  // To open a connection, that it has asked for and not been given.
  int turns = 0;
  bool dead = false;
};

struct Worker {
  Incarnation incarnation;
  bool alive = true;
};

class World {
 public:
  explicit World(const Settings& settings);

  const Settings& settings() const { return *settings_; }
  const std::vector<End>& ends() const { return ends_; }
  const std::vector<Worker>& workers() const { return workers_; }
  const std::vector<Call>& calls() const { return calls_; }
  const std::vector<Connection>& connections() const { return connections_; }
  Time now() const { return now_; }
  /// The first invariant that broke; empty: none.
  const std::string& violation() const { return violation_; }
  std::uint64_t digest() const;

  // --- The network. `c`: which connection, `v`: which view of it hears.

  bool can_deliver_hello(std::size_t c) const;
  void deliver_hello(std::size_t c);
  bool can_deliver_answer(std::size_t c) const;
  /// Accepted, refused or nobody there.
  void deliver_answer(std::size_t c);
  bool can_deliver_join(std::size_t c) const;
  void deliver_join(std::size_t c);
  bool can_deliver(std::size_t c, int v, Lane lane, std::size_t place) const;
  enum class Copies { kOne, kTwo };
  void deliver(std::size_t c, int v, Lane lane, std::size_t place, Copies copies = Copies::kOne);
  bool can_deliver_payloads(std::size_t c, int v, std::size_t place) const;
  void deliver_payloads(std::size_t c, int v, std::size_t place);
  /// The end learns that the connection is down.
  bool can_notice(std::size_t c, int v) const;
  void notice(std::size_t c, int v);
  bool can_break(std::size_t c) const;
  void break_connection(std::size_t c) { connections_[c].broken = true; }
  void swallow(std::size_t c) { connections_[c].black = true; }
  /// Closed connections keep what is on its way to whoever closed them.
  void keep_late_packets(bool keep) { keeps_late_ = keep; }

  // --- Programs.

  int add_call(const CallPlan& plan);
  bool can_start(int call) const;
  void start(int call);
  bool can_cancel(int call) const;
  void cancel(int call);
  bool can_start_handler(int call) const;
  void start_handler(int call);
  bool can_finish_handler(int call) const;
  void finish_handler(int call);

  // --- Workers and time.

  /// The worker ends its link with another one, and says so.
  bool can_leave(int worker, int peer) const;
  void leave(int worker, int peer);
  void crash(int worker);
  void restart(int worker);
  /// `e`: which end's turn to open a connection it is.
  bool can_take_turn(std::size_t e) const;
  void take_turn(std::size_t e);
  /// Somebody passes it on to `e`'s worker that the other end would have a connection.
  bool can_ask(std::size_t e) const;
  bool must_ask(std::size_t e) const;
  void ask(std::size_t e);
  /// `e`: which end of a link hears that the process at the other one has ended.
  bool can_prove_death(std::size_t e) const;
  void prove_death(std::size_t e);
  /// When a link of the worker wants to be polled.
  Time wake(int worker) const;
  void poll(int worker);
  /// When some worker next drops what another one holds of it.
  Time next_drop() const;
  void advance_to(Time when);

  /// What must be true once the network has behaved for long enough: empty, or what is not.
  std::string unrest() const;
  void violate(const std::string& what);

 private:
  Time now_of(int worker) const;
  bool hears(const Connection& connection, int v) const;
  Reach reach_of(const Connection& connection) const;
  Time real_of(int worker, Time local) const;
  End& end(int e) { return ends_[static_cast<std::size_t>(e)]; }
  const End& end(int e) const { return ends_[static_cast<std::size_t>(e)]; }
  Call& call(int c) { return calls_[static_cast<std::size_t>(c)]; }
  const Call& call(int c) const { return calls_[static_cast<std::size_t>(c)]; }
  int find_end(int worker, Incarnation peer) const;
  int end_towards(int worker, int peer_worker, Incarnation peer);
  /// Each link counts its own attempts, so that two of a worker's links may use a name.
  Connection* find(int e, const ConnectionName& name);
  int view_of(const Connection& connection, int e) const;
  void come_up(std::size_t c, int v, const LinkHello& theirs, Link::Outputs& outputs);
  void hear(int e, const ConnectionName& on, const Packet& packet);
  void take(int e, const Outbound& content, std::uint64_t number);
  void take_request(int e, const Outbound& content);
  void take_cancel(int e, const Outbound& content);
  void send(int e, FrameKind kind, std::shared_ptr<Outbound> content);
  void perform(int e, const Link::Outputs& outputs);
  void write(int e, const LinkOutputs::Write& write);
  void check_windows(int e, const Outbound& content);
  void frame_ended(int e, const Outbound& content, FrameEnd how);
  void link_ended(int e, Gone how);
  void give_up_unsent(int e);
  void open(int e, std::uint64_t attempt);
  void close(int e, const ConnectionName& name);
  void collect();
  void check_fences();
  void end_call(int call, Call::Outcome outcome);
  std::uint64_t cost(std::uint64_t bytes) const { return bytes + LinkLanes::kFrameCostBytes; }

  std::shared_ptr<const Settings> settings_;
  std::vector<Worker> workers_;
  std::vector<End> ends_;
  std::vector<Connection> connections_;
  std::vector<Call> calls_;
  Time now_ = kBegin;
  bool keeps_late_ = false;
  std::string violation_;
};

}  // namespace sinew::internal::link_model
