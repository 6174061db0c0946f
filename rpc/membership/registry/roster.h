#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/membership/registry/loss_judge.h"
#include "sinew/rpc/membership/registry/registry_messages.h"
#include "sinew/rpc/membership/registry/return_window.h"

namespace sinew::internal::registry {

/// Who is in the job: joins, returns, leases, departures. Pure; `now` is time that the registrar
/// was not stopped in.
class Roster {
 public:
  Roster(const Options& options, Time now);

  /// Before each request: its sender lives, and has sent it after the answer `echo`.
  void heard(Incarnation from, std::uint64_t echo, Time now, Effects& out);
  void join(Incarnation from, const Join& join, Time now, Effects& out);
  void come_back(Incarnation from, const Return& back, Effects& out);
  void renew(Incarnation from, const Renew& renew, Effects& out);
  void leave(Incarnation from, const Leave& leave, Effects& out);
  void report(Incarnation from, const Report& report, Time now, Effects& out);
  /// The registrar knows that the process of that worker has ended.
  void ended(Incarnation worker, const std::string& reason, Effects& out);
  /// It does not wait to join any more.
  void stop_waiting(Incarnation joiner);
  void tick(Time now, Effects& out);
  /// The answer to a worker that is no member.
  void send_away(Incarnation from, Effects& out) const;
  /// Has all members know what has changed since it was called last. Returns who is gone since.
  std::vector<WorkerInfo> publish(Effects& out);

  /// Null: it is no member.
  const WorkerInfo* find(Incarnation member) const;
  const WorkerInfo* find(const std::string& name) const;
  const Record* record_of(Incarnation member) const;
  std::vector<std::string> names() const;
  List list() const;
  std::uint64_t token() const { return token_; }
  std::size_t waiting() const { return waiting_.size(); }
  bool is_returning() const { return window_.has_value(); }

 private:
  struct Member {
    Record record;
    Time heard;
    /// It was a member before this registrar began.
    bool has_returned;
  };
  /// A join, by the number of its input: they are served in that order.
  struct Waiting {
    Record wanted;
    Time heard;
  };

  absl::Status check(Incarnation from, const Record& self, const std::string& job,
                     std::int32_t world_size) const;
  void send(Incarnation to, Answer answer, Effects& out) const;
  // Changes of the list.
  void add(const Record& record, bool has_returned, Time now, Effects& out);
  void remove(Incarnation member, Gone why, const std::string& reason, Effects& out);
  void send_out(Incarnation worker, Gone why, const std::string& reason, Effects& out);
  void note(Change change);
  std::optional<Update> changes_since(std::uint64_t count) const;
  void raise_epoch(std::uint64_t seen);
  // The return.
  void settle(Time now, Effects& out);
  void decide(Time now, Effects& out);
  // Newcomers.
  void admit(Time now, Effects& out);
  bool is_complete() const;
  std::int32_t free_rank(const WorkerInfo& wanted) const;
  const WorkerInfo* holder_of(const WorkerInfo& wanted) const;
  void refuse_for(const WorkerInfo& holder, std::uint64_t after, std::uint64_t echo, Effects& out);
  std::string why_waits(const WorkerInfo& wanted) const;

  Options options_;
  std::uint64_t epoch_ = 1;
  std::uint64_t count_ = 0;
  /// Inputs that there were.
  std::uint64_t token_ = 0;
  Time now_;
  std::optional<JobInstance> instance_;
  /// A fixed world has been complete, or has returned.
  bool is_founded_;
  bool is_settled_ = false;
  std::optional<ReturnWindow> window_;

  std::map<Incarnation, Member> members_;
  std::map<std::string, Incarnation> by_name_;
  std::map<std::int32_t, Incarnation> by_rank_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::map<Incarnation, std::uint64_t> waits_since_;
  LossJudge losses_;

  /// The latest changes; the last one made list `count_`.
  std::deque<Change> log_;
  std::uint64_t published_ = 0;
  std::vector<WorkerInfo> departed_;
  std::map<Incarnation, Out> gone_;
  std::deque<Incarnation> gone_order_;
};

}  // namespace sinew::internal::registry
