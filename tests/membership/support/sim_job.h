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
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/peer_membership.h"
#include "sinew/rpc/membership/scheduler.h"
#include "sinew/tests/membership/support/sim_file.h"
#include "sinew/tests/membership/support/sim_network.h"
#include "sinew/tests/membership/support/simulation.h"

namespace sinew::internal::sim {

/// A place in the job, in which one worker after the other is started.
struct Slot {
  int index = 0;
  std::shared_ptr<Process> process;
  std::shared_ptr<Plane> plane;
  std::shared_ptr<Scheduler> scheduler;
  std::unique_ptr<Directory> directory;
  std::unique_ptr<PeerMembership> membership;
  std::optional<Future<void>> joined;
  TimePoint started;
  TimePoint joined_at;
  std::optional<Future<void>> left;
  TimePoint left_at;
  bool was_evicted = false;
  TimePoint resumes = TimePoint::max();
  TimePoint starts = TimePoint::max();

  bool runs() const { return process != nullptr && process->runs(); }
};

/// A job whose workers a supervisor starts again, in virtual time, with the rules of membership
/// that hold all the time, and those that hold in the end.
class Job {
 public:
  Job(const Plan& plan, std::size_t workers, Chance& chance, bool narrate);
  ~Job();

  // ---- What happens. Slots are named by their numbers.
  std::size_t size() const { return slots_.size(); }
  Slot& slot(std::size_t index) { return slots_[index]; }
  /// The supervisor starts it again after its usual pause.
  void kill(Slot& slot) { end(slot, "kill"); }
  void leave(Slot& slot);
  /// Its process does not run for so long.
  void stop(Slot& slot, nanoseconds time);
  /// Nothing gets from one host to the other any more.
  void cut(int from, int to) { network_.cut(from, to); }
  void mend(int from, int to) { network_.mend(from, to); }
  /// From now on nothing is cut, and nobody stopped.
  void make_peace();
  /// Also who was evicted is started again, whatever the plan says.
  void start_evicted() { starts_evicted_ = true; }
  void heal();
  /// Time goes on a bit.
  void step();
  /// After some time of peace: one job, with everybody in it.
  void judge();

  /// How long the supervisor waits before it starts a worker again.
  std::function<nanoseconds()> pause;
  bool ok() const { return report_.violation.empty(); }
  Report& report() { return report_; }
  testing::ManualClock& clock() { return clock_; }
  Network& network() { return network_; }
  SharedFile& file() { return file_; }
  void say(const std::string& text) const;
  std::string text_of(const Slot& slot) const;

  static constexpr nanoseconds kLongStop = seconds(12);

 private:
  std::string now_text() const;
  void violate(const std::string& text);
  bool is_founder(const Slot& slot) const;
  Rendezvous rendezvous(const Slot& slot) const;
  void start(Slot& slot);
  void connect(Slot& slot, MembershipOptions& options);
  void on_change(Slot& slot, const Process& process, const std::vector<Member>& joined,
                 const std::vector<Departed>& gone);
  void on_removed(Slot& slot, const Process& process, const std::string& reason);
  void on_warning(const Slot& slot, const std::string& warning);
  void end(Slot& slot, const char* why);
  void resume(Slot& slot);
  void supervise(Slot& slot);
  void supervise_leaving(Slot& slot);
  void keep_leases(Slot& slot);
  void look_at(const WorkerInfo& from, const WorkerInfo& to, const std::string& method,
               const std::string& body);
  void expect_one_part();

  const Plan plan_;
  Chance& chance_;
  const bool narrate_;
  testing::ManualClock clock_;
  Network network_;
  SharedFile file_;
  std::vector<Slot> slots_;
  std::uint64_t last_ = 0;
  std::map<std::pair<int, int>, TimePoint> apart_since_;
  bool has_met_another_job_ = false;
  bool starts_evicted_ = false;
  Report report_;
};

}  // namespace sinew::internal::sim
