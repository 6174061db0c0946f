#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/peer_membership.h"
#include "sinew/tests/membership/support/sim_process.h"

namespace sinew::internal::sim {

inline constexpr nanoseconds kBeat = milliseconds(250);
inline constexpr nanoseconds kLease = seconds(2);

class Network;

/// One worker's end of the network: what the link layer is to a membership. Links come up when two
/// processes say something to each other, deliver in order and once, go on after an interruption
/// that is shorter than a lease, and have ended for good after one that is longer, at each end when
/// that notices. Calls of who is not on this worker's list wait until it is, or a while, but for
/// those that guests may make (is_for_guests()).
class Plane final : public ControlPlane {
 public:
  Plane(Network& network, std::shared_ptr<Process> process)
      : network_(network), process_(std::move(process)) {}

  void add_control_method(std::string name, ControlHandler handler) override {
    handlers_[std::move(name)] = std::move(handler);
  }
  Future<std::string> control_call(const WorkerInfo& to, std::string_view method, std::string body,
                                   nanoseconds timeout) override;
  Future<std::string> control_call_address(const Contact& contact, std::string_view method,
                                           std::string body, nanoseconds timeout) override;
  Future<Standing> ask_standing(const Member& of, const Standing& own);
  Future<MembershipOptions::Answerer> ask_address(const Contact& contact, const Standing& own);
  Future<bool> probe_lost(const Member& member);
  /// This worker's list has changed.
  void serve_held();
  bool is_linked(const WorkerInfo& other) const;

  /// Null as long as there is none, or it has ended.
  PeerMembership* membership = nullptr;
  /// Whether that one is on this worker's list.
  std::function<bool(const WorkerInfo& other)> lists;
  /// The rank by which others know it.
  std::function<std::int32_t()> rank;

 private:
  friend class Network;
  Network& network_;
  const std::shared_ptr<Process> process_;
  std::map<std::string, ControlHandler> handlers_;
  struct HeldCall {
    WorkerInfo from;
    std::function<void()> serve;
  };
  // In the order in which they have come.
  std::map<std::uint64_t, HeldCall> held_;
  std::uint64_t last_held_ = 0;
};

/// The wires between the processes.
class Network {
 public:
  Network(testing::ManualClock& clock, Chance& chance) : clock_(clock), chance_(chance) {}

  std::shared_ptr<Plane> add(const std::shared_ptr<Process>& process);
  /// The process is gone, with its ends of all links.
  void remove(const Process& process);
  /// Nothing gets from one host to the other any more.
  void cut(int from, int to) { cuts_.insert({from, to}); }
  void mend(int from, int to) { cuts_.erase({from, to}); }
  void heal() { cuts_.clear(); }
  /// `of` has `other` on its list, and keeps a lease with it.
  void keep_lease(Process& of, const WorkerInfo& other);
  /// `at` has done with `other`.
  void end(const Process& at, const WorkerInfo& other);
  void end_all(const Process& at);
  /// `other` has said goodbye: `at` has done with it in a while.
  void retire(const Process& at, const WorkerInfo& other);
  /// All run on one machine, which knows for certain when one has ended.
  bool pidfds = false;
  /// Two of those processes of which one has lost the other, or nothing.
  std::string lost_pair(const std::set<std::uint64_t>& among) const;
  /// May be empty.
  OnStep on_step;
  /// Sees each message that is delivered.
  std::function<void(const WorkerInfo& from, const WorkerInfo& to, const std::string& method,
                     const std::string& body)>
      tap;

 private:
  friend class Plane;
  struct End {
    std::uint64_t incarnation = 0;
    bool has_ended = false;
    /// It was never on the list there: nobody's loss.
    bool was_guest = false;
    TimePoint heard;
    /// Messages to the other one.
    std::deque<std::function<void()>> outgoing;
    bool pumps = false;
    /// Since when its address refuses.
    TimePoint refused_since = TimePoint::max();
    std::vector<Promise<std::string>> calls;
  };
  struct Link {
    std::array<End, 2> ends;
    bool was_up = false;
    nanoseconds patience{};
  };
  using Key = std::pair<std::uint64_t, std::uint64_t>;

  static Key key(std::uint64_t a, std::uint64_t b) { return {std::min(a, b), std::max(a, b)}; }
  Link& link(std::uint64_t a, std::uint64_t b);
  Link* find_link(std::uint64_t a, std::uint64_t b);
  Process* find(std::uint64_t incarnation) const;
  Plane* plane(std::uint64_t incarnation) const;
  Process* listener(const std::string& address) const;
  static int host_of(const std::string& address);
  bool reaches(int from, int to) const { return cuts_.count({from, to}) == 0; }
  bool both_ways(const Process& a, const Process& b) const {
    return reaches(a.host(), b.host()) && reaches(b.host(), a.host());
  }
  nanoseconds delay();
  TimePoint later() { return clock_.now() + delay(); }

  Future<std::string> call(Process& from, std::uint64_t to, std::string method, std::string body,
                           nanoseconds timeout);
  void send(std::uint64_t from, std::uint64_t to, std::function<void()> deliver);
  void pump(std::uint64_t from, std::uint64_t to);
  void pump_later(std::uint64_t from, std::uint64_t to, TimePoint when);
  void request(std::uint64_t from, std::uint64_t to, const std::string& method, std::string body,
               const Promise<std::string>& answer);
  void serve(const WorkerInfo& from, Plane& callee, const std::string& method, std::string body,
             const Promise<std::string>& answer);
  void take_up_again(Link& link);
  void beat(std::uint64_t a, std::uint64_t b);
  void beat_end(Link& link, std::size_t end);
  void lose(std::uint64_t at, std::uint64_t other);
  void fail_calls(std::uint64_t at, std::uint64_t other, const absl::Status& status);
  // Asks whoever answers at an address, without a link; `then` is never called where nothing gets
  // through.
  using OnAnswerer = std::function<void(const absl::StatusOr<Process*>&)>;
  void ask(Process& from, const std::string& address, OnAnswerer then);

  testing::ManualClock& clock_;
  Chance& chance_;
  std::map<std::uint64_t, std::pair<std::shared_ptr<Process>, std::shared_ptr<Plane>>> processes_;
  std::map<Key, Link> links_;
  // Also of those that are gone.
  std::map<std::uint64_t, WorkerInfo> names_;
  // Goes first: answers are given up while the rest goes.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::set<std::pair<int, int>> cuts_;
};

/// "host3:17", "host0:meet"
std::string address_on(int host, const std::string& port);

}  // namespace sinew::internal::sim
