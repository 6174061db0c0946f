#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/peer_membership.h"
#include "sinew/tests/support/fake_control_plane.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::FakeControlNetwork;
using testing::FakeControlPlane;
using testing::ManualClock;
using testing::StepRunner;

using Names = std::vector<std::string>;

/// Somebody of whom there is no more than an entry in a list. A Member in braces, as an argument,
/// is to GCC 12 with -O3 one that may be destroyed half made.
inline Member member_at(std::string address, WorkerInfo worker) {
  return {std::move(worker), std::move(address)};
}

class MembershipWorld;

/// A worker of which there is only the membership.
struct Worker {
  Worker(MembershipWorld& world, const std::string& name, Rendezvous rendezvous, bool serves,
         std::uint64_t incarnation, const std::string& address, seconds timeout);

  Names names() const {
    Names all;
    for (const Member& each : directory.members()) all.push_back(each.worker.name);
    return all;
  }
  /// "ok", "pending", or the error's text.
  std::string outcome() const {
    if (!joined.done()) return "pending";
    return joined.error() == nullptr ? "ok" : std::string(to_status(joined.error()).message());
  }
  absl::StatusCode code() const { return to_status(joined.error()).code(); }
  WorkerInfo info() const { return membership->self(); }
  MembershipState state() const { return membership->state(); }

  Directory directory;
  FakeControlPlane plane;
  Names events;
  std::vector<std::string> warnings;
  std::string removed;
  std::unique_ptr<PeerMembership> membership;
  Future<void> joined;
};

/// The protocol, over a fake plane and a clock that is moved by hand.
class MembershipWorld {
 public:
  MembershipWorld() : MembershipWorld(std::make_shared<StepRunner>()) {}
  explicit MembershipWorld(std::uint32_t seed)
      : MembershipWorld(std::make_shared<StepRunner>(seed)) {}

  static constexpr char kMeetingPlace[] = "at:rank0";

  static Rendezvous fixed(int rank, int world_size) {
    return {Rendezvous::Kind::kTcp, {kMeetingPlace}, "", rank, world_size, rank == 0};
  }
  static Rendezvous open(int rank = -1) {
    return {Rendezvous::Kind::kTcp, {kMeetingPlace}, "", rank, 0, true};
  }

  Worker& add(const std::string& name, const Rendezvous& rendezvous,
              seconds timeout = seconds(60)) {
    Worker& added = add_without_pause(name, rendezvous, timeout);
    const bool pauses = added.plane.address() == kMeetingPlace && rendezvous.world_size == 0;
    if (pauses && rendezvous.founds) advance(PeerMembership::kFoundingPause);
    return added;
  }
  /// A founder of an open job, too, has only just come.
  Worker& add_without_pause(const std::string& name, const Rendezvous& rendezvous,
                            seconds timeout = seconds(60)) {
    const bool first = rendezvous.world_size == 0 && rendezvous.founds && workers.empty();
    const bool serves =
        rendezvous.kind == Rendezvous::Kind::kTcp && (rendezvous.rank == 0 || first);
    return add_at(serves ? kMeetingPlace : "at:" + name + std::to_string(next_), name, rendezvous,
                  serves, timeout);
  }
  /// A founder, or one that is to be, at a seed of its own.
  Worker& add_at_seed(const std::string& seed, const std::string& name,
                      const Rendezvous& rendezvous, seconds timeout = seconds(60)) {
    return add_at(seed, name, rendezvous, rendezvous.founds, timeout);
  }
  /// Whatever its rank.
  Worker& add_at_rendezvous(const std::string& name, const Rendezvous& rendezvous) {
    return add_at(kMeetingPlace, name, rendezvous, true, seconds(60));
  }

  // Tasks that never run would keep their strands, which keep the runner.
  ~MembershipWorld() { run(); }

  /// Also waits for what threads of rendezvous files do.
  void run() {
    runner->run_until_idle();
    while (std::any_of(workers.begin(), workers.end(), [](const std::unique_ptr<Worker>& worker) {
      return worker->membership != nullptr && worker->membership->uses_file();
    })) {
      std::this_thread::yield();
      runner->run_until_idle();
    }
  }
  void advance(nanoseconds time) {
    constexpr nanoseconds kStep = milliseconds(50);
    run();
    for (nanoseconds passed{}; passed < time; passed += kStep) {
      clock.advance(std::min(kStep, time - passed));
      run();
    }
  }
  /// The worker dies and the others' leases end.
  void lose(Worker& lost) {
    network.kill(lost.plane.address());
    dead.insert(lost.plane.self().incarnation);
    const WorkerInfo info = lost.info();
    lost.membership.reset();
    for (const auto& worker : workers) {
      if (worker->membership) worker->membership->on_worker_lost(info);
    }
  }

  /// The links between the two have ended at both, and stay so.
  void part(Worker& one, Worker& other) {
    network.cut(one.plane.address(), other.plane.address());
    const WorkerInfo first = one.info();
    const WorkerInfo second = other.info();
    suspect(one, second);
    suspect(other, first);
  }
  /// `worker` has lost `other`, as its end of the link says.
  static void suspect(Worker& worker, const WorkerInfo& other) {
    worker.membership->when_judged(other,
                                   [&worker, other] { worker.membership->on_worker_lost(other); });
  }
  /// What `of` answers `asker` at its address. Lost while either of them does not run or the
  /// network is down.
  Future<Standing> ask(const Worker& asker, const Member& of, const Standing& own);
  Future<MembershipOptions::Answerer> ask_at(const Worker& asker, const std::string& address,
                                             const Standing& own);

  /// Addresses of workers that are stopped.
  std::set<std::string> stopped;
  // Who has never met anybody but whom it was told to.
  std::set<Incarnation> unlinked;
  bool is_down = false;
  std::vector<Promise<Standing>> unanswered;
  int questions = 0;

  std::shared_ptr<StepRunner> runner;
  ManualClock clock;
  Scheduler scheduler;
  FakeControlNetwork network;
  std::set<Incarnation> dead;
  int probes = 0;
  std::vector<std::unique_ptr<Worker>> workers;

 private:
  explicit MembershipWorld(std::shared_ptr<StepRunner> step_runner)
      : runner(std::move(step_runner)),
        scheduler(runner, clock, clock),
        network(runner, clock, clock) {}
  Worker& add_at(const std::string& address, const std::string& name, const Rendezvous& rendezvous,
                 bool serves, seconds timeout) {
    workers.push_back(
        std::make_unique<Worker>(*this, name, rendezvous, serves, next_++, address, timeout));
    return *workers.back();
  }
  std::uint64_t next_ = 1;
};

/// A world of three that have joined.
struct Trio : MembershipWorld {
  enum class Kind { kOpen, kFixed };

  explicit Trio(Kind kind)
      : a(add("a", kind == Kind::kFixed ? fixed(0, 3) : open())),
        b(add("b", kind == Kind::kFixed ? fixed(1, 3) : open())),
        c(add("c", kind == Kind::kFixed ? fixed(2, 3) : open())) {
    advance(seconds(2));
  }

  Worker& a;
  Worker& b;
  Worker& c;
};

}  // namespace sinew::internal
