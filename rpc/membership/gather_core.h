#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/strand.h"
#include "sinew/rpc/membership/departures.h"
#include "sinew/rpc/membership/gather.h"
#include "sinew/rpc/membership/gather_histories.h"

namespace sinew::internal {

inline LossMode mode_of(const GatherKey& key) {
  return key.epoch() == 0 ? LossMode::kTolerate : LossMode::kFail;
}

/// What Gather is made of. All of it runs on one strand. gather.cc: joining in, and what passes
/// between workers. gather_course.cc: how a gather goes on, and what losses do to it.
///
/// A gather that tolerates no loss is complete when all values have come to its leader, and stays
/// so: the leader alone decides, and who is lost after it has come has come. When the leader is
/// gone, the answer that it gave to others is asked for by the next name in its place.
class GatherCore : public std::enable_shared_from_this<GatherCore> {
 public:
  using Values = std::vector<std::string>;

  GatherCore(ControlPlane& plane, Directory& directory, std::string self, Scheduler& scheduler)
      : plane_(plane),
        directory_(directory),
        self_(std::move(self)),
        scheduler_(scheduler),
        strand_(std::make_shared<Strand>(scheduler.runner())) {}

  void add_methods();
  Future<Values> start(std::vector<std::string> names, std::string value,
                       std::chrono::nanoseconds timeout, LossMode mode);
  void on_worker_lost(const WorkerInfo& worker, Departure how);
  void on_worker_gone(const WorkerInfo& worker, Departure how);
  Future<void> end(const absl::Status& reason);
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

 private:
  using Outcome = GatherHistories::Outcome;
  using Answer = Promise<std::string>;
  using Handler = void (GatherCore::*)(const WorkerInfo& from, const std::string& body,
                                       const Answer& answer);

  struct Value {
    Incarnation from;
    std::string bytes;
  };
  struct Waiter {
    WorkerInfo worker;
    Answer answer;
  };
  // One gather. It exists from the first value on, ours or another's.
  struct Slot {
    std::vector<std::string> names;
    // Set once this worker has joined in.
    std::optional<Promise<Values>> own;
    std::chrono::nanoseconds timeout{};
    Scheduler::TimePoint deadline = Scheduler::TimePoint::max();
    Scheduler::TimerId timer = 0;
    // kFail: who the names are, once that is known: when this worker has joined in at the latest.
    std::vector<WorkerInfo> members;
    // What has come, ours included.
    std::map<std::string, Value> values;
    std::vector<Waiter> waiters;
    // kTolerate: lost since the gather began here, whoever has the name now. kFail: leaders that
    // will not answer any more.
    std::set<std::string> gone;
    // Whom we sent our value to.
    std::string followed;
    // Whom we asked for the outcome of a leader that was lost.
    std::set<std::string> asked;
    // kFail: who of these knows none.
    std::set<std::string> without_outcome;
    // kFail: who leads in the place of a leader, and asks for an outcome that may still come.
    std::vector<Answer> questions;
  };
  using Slots = std::map<GatherKey, Slot>;

  /// What somebody answered.
  struct Reply {
    Outcome outcome;
    /// The outcome of the gather, as opposed to an error of the call.
    bool decided = false;
    bool is_unreachable() const {
      return !decided &&
             (absl::IsUnavailable(outcome.status()) || absl::IsNotFound(outcome.status()));
    }
  };
  using OnReply = void (GatherCore::*)(const GatherKey&, const std::string& from, const Reply&);

  template <class F>
  void post(F step);
  void add_method(std::string name, Handler handler);
  static void reply_with(const Answer& answer, const Outcome& outcome);
  /// Some of them, for texts.
  static std::string shown(const std::vector<std::string>& names);
  /// The same in every process; never 0.
  static std::uint32_t fingerprint(const std::vector<WorkerInfo>& members);

  // gather.cc. `listed`: what the list says of the names; nothing in kTolerate mode.
  void join_in(std::vector<std::string> names, std::string value, std::chrono::nanoseconds timeout,
               const std::vector<absl::StatusOr<Member>>& listed, const Promise<Values>& own);
  std::vector<absl::StatusOr<Member>> look_up(const std::vector<std::string>& names) const;
  absl::StatusOr<std::vector<WorkerInfo>> find_members(
      const std::vector<std::string>& names,
      const std::vector<absl::StatusOr<Member>>& listed) const;
  void handle_value(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void handle_result(const WorkerInfo& from, const std::string& body, const Answer& answer);
  absl::Status check_set(const std::vector<std::string>& names, const std::string& from) const;
  absl::Status check_begun(const std::vector<std::string>& names, const GatherKey& key,
                           const WorkerInfo& from) const;
  void call(const std::string& to, std::string_view method, const GatherKey& key, const Slot& slot,
            OnReply on_reply);

  // gather_course.cc
  void advance(const GatherKey& key);
  void lead(const GatherKey& key, Slot& slot);
  void lead_in_place(const GatherKey& key, Slot& slot);
  void follow(const GatherKey& key, Slot& slot, const std::string& leader);
  void on_answer(const GatherKey& key, const std::string& leader, const Reply& reply);
  void on_leader_gone(const GatherKey& key, Slot& slot, const std::string& leader);
  void on_result(const GatherKey& key, const std::string& from, const Reply& reply);
  void on_deadline(const GatherKey& key);
  void lose(const WorkerInfo& worker, Departure how);
  void lose_tolerated(const GatherKey& key, Slot& slot, const WorkerInfo& worker);
  void lose_member(const GatherKey& key, Slot& slot, const WorkerInfo& worker, Departure how);
  void bound_values_of(Incarnation departed);
  void forget_departed();
  void fail_hopeless(const GatherKey& key);
  void finish(const GatherKey& key, const Outcome& outcome);
  bool leads_all(const GatherKey& key, const Slot& slot) const;
  bool is_gone(const GatherKey& key, const Slot& slot, std::size_t index) const;
  std::string leader_of(const GatherKey& key, const Slot& slot) const;
  std::vector<std::string> missing(const GatherKey& key, const Slot& slot) const;
  const WorkerInfo* find_hopeless(const Slot& slot) const;
  absl::Status status_without(const WorkerInfo& worker, const Slot& slot) const;
  absl::Status status_lost_during(const WorkerInfo& worker, const Slot& slot) const;

  ControlPlane& plane_;
  Directory& directory_;
  const std::string self_;
  Scheduler& scheduler_;
  const std::shared_ptr<Strand> strand_;

  // Touched on the strand only.
  Slots slots_;
  GatherHistories histories_;
  Departures departures_;
  // What those wait for whose loss is known while their links may be up. They hear of it by the
  // ends of these, and may hear first that it is them whom the job does without.
  std::map<Incarnation, std::vector<Answer>> unanswered_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Runs `step` on the strand, unless the gathers are closed by then.
template <class F>
void GatherCore::post(F step) {
  strand_->post([weak = weak_from_this(), step = std::move(step)]() mutable {
    const std::shared_ptr<GatherCore> self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(self->mutex_);
      if (self->closed_) return;
    }
    step(*self);
  });
}

}  // namespace sinew::internal
