#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/strand.h"
#include "sinew/rpc/membership/ballot.h"
#include "sinew/rpc/membership/coordinator.h"
#include "sinew/rpc/membership/loss_reports.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/membership/seed_round.h"
#include "sinew/rpc/membership/standing_poll.h"
#include "sinew/rpc/membership/standings.h"

namespace sinew::internal {

/// For an answer with the list: of a member, and of whoever is at an address.
inline constexpr std::chrono::nanoseconds kListTimeout = std::chrono::seconds(2);
inline constexpr std::chrono::nanoseconds kGreetTimeout = std::chrono::seconds(5);

/// Answers a control method with an error.
inline void fail(const Promise<std::string>& answer, const absl::Status& status) {
  answer.try_set_error(make_error(status));
}

/// What Membership is made of. All of it runs on one strand, so nothing but the published snapshot
/// needs a lock. membership_join.cc: this worker asks to join. membership_serve.cc: it answers
/// others who do. membership_seeds.cc: the addresses where workers meet. membership_core.cc: lists.
/// membership_lead.cc: it takes over, and coordinates. membership_votes.cc: how a fixed world
/// decides. membership_leave.cc: leaving. membership_losses.cc: losses. membership_standing.cc:
/// whether it is still in. Why one class: docs/adr/0033-one-class-for-membership.md.
class MembershipCore : public std::enable_shared_from_this<MembershipCore> {
 public:
  MembershipCore(ControlPlane& plane, Directory& directory, MembershipOptions options,
                 Scheduler& scheduler);

  void add_methods();
  Future<void> join_async();
  Future<void> leave_async(std::chrono::nanoseconds timeout);
  void on_worker_lost(const WorkerInfo& worker, Proof proof, std::string reason);
  void on_sought();
  void when_judged(const WorkerInfo& worker, std::function<void()> then);
  Standing on_asked(const WorkerInfo& asker, const std::string& address, const Standing& claim);
  void close();

  bool ready() const;
  bool uses_file() const { return file_operations_.load(std::memory_order_acquire) > 0; }
  WorkerInfo self() const;
  std::vector<std::string> world_names() const;
  WorkerInfo coordinator() const;
  MembershipState state() const;
  std::vector<Contact> contacts() const;

 private:
  using TimePoint = Scheduler::TimePoint;
  using Answer = Promise<std::string>;
  using Step = std::function<void(MembershipCore&)>;
  using Reply = std::function<void(MembershipCore&, const absl::StatusOr<std::string>&)>;

  enum class State {
    kIdle,
    /// Looks for a member to join through.
    kSeeking,
    /// At a seed address, waits for a job that lives to call it in before it founds one.
    kPausing,
    /// Coordinates a fixed world that is not complete yet.
    kCollecting,
    kMember,
    /// Asks the others for the newest list before it coordinates.
    kTakingOver,
    kCoordinating,
    kLeaving,
    /// Left, failed to join, or was removed.
    kOut,
  };
  struct Waiting {
    WorkerInfo worker;
    Answer answer;
    TimePoint since;
  };
  // Who joins or leaves with a version of the list, and is answered when all others have it.
  struct Settling {
    std::uint64_t version;
    WorkerInfo worker;
    Answer answer;
  };

  // Runs `step` on the strand, unless the membership is closed by then.
  void post(Step step);
  void after(std::chrono::nanoseconds delay, Step step);
  void call(const WorkerInfo& to, std::string_view method, std::string body,
            std::chrono::nanoseconds timeout, Reply reply);
  void call_address(const Contact& contact, std::string_view method, std::string body,
                    std::chrono::nanoseconds timeout, Reply reply);
  void on_reply(const Future<std::string>& future, Reply reply);
  using Handler = void (MembershipCore::*)(const WorkerInfo& from, const std::string& body,
                                           const Answer& answer);
  void add_method(std::string name, Handler handler);
  Answer make_answer() const { return Answer(scheduler_.executor()); }
  void warn(const std::string& text);
  // What is to be done on the strand when the file's thread is done.
  using FileStep = std::function<void(MembershipCore&, const absl::Status&)>;
  RendezvousFile::OnDone then(FileStep step);
  void remove_from_file(const WorkerInfo& worker, FileStep step);
  void warn_of_another_job(const std::string& who);
  // What a member is that does not coordinate.
  State member_state() const { return left_.has_value() ? State::kLeaving : State::kMember; }
  // Coordinates, or would, if others could be asked.
  bool leads() const {
    return !left_.has_value() && (state_ == State::kCoordinating || state_ == State::kTakingOver);
  }
  bool is_leaving() const { return left_.has_value() && state_ != State::kOut; }
  bool is_in() const {
    return !left_.has_value() && (state_ == State::kMember || state_ == State::kTakingOver ||
                                  state_ == State::kCoordinating);
  }
  // A member has called this worker in, which does not coordinate, or not yet.
  bool is_invited() const { return !invited_to_.address.empty(); }
  bool is_called() const { return state_ == State::kSeeking && is_invited(); }
  std::string job_text() const;

  // membership_join.cc
  void start_join();
  void begin_search();
  void pause_before_founding();
  void end_pause();
  void put_off_founding();
  void found();
  void seek();
  void seek_next();
  void seek_again();
  void ask_to_join(const Contact& contact);
  void on_join_reply(const absl::StatusOr<std::string>& reply);
  bool is_contact(const std::string& address) const;
  void on_candidate_failed(const std::string& address, const absl::Status& status);
  void on_join_deadline();
  absl::Status never_answered() const;
  void on_listed(const Contact& contact);
  void on_list_fetched(const absl::StatusOr<std::string>& reply);
  void finish_join(MemberView view);
  void fail_join(const absl::Status& status);
  void search_file();
  bool may_found_by_file() const;
  void found_by_file();
  void publish_to_file();
  void handle_invite(const WorkerInfo& from, const std::string& body, const Answer& answer);

  // membership_serve.cc
  void handle_join(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void handle_admit(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void handle_list(const WorkerInfo& from, const std::string& body, const Answer& answer);
  absl::Status unsure_text() const;
  void decide(const JoinAsk& ask, std::chrono::nanoseconds patience, const Answer& answer);
  void probe(const JoinAsk& ask, std::chrono::nanoseconds patience,
             const std::vector<WorkerInfo>& incumbents, const Answer& answer);
  void on_probed(const JoinAsk& ask, std::chrono::nanoseconds patience, const WorkerInfo& incumbent,
                 const absl::StatusOr<bool>& is_lost, const Answer& answer);
  void wait_for_world(const WorkerInfo& worker, std::chrono::nanoseconds patience,
                      const Answer& answer);
  void on_patience_over(const WorkerInfo& worker, TimePoint since);
  void complete_world();
  void admit(const WorkerInfo& worker, const Answer& answer);
  void answer_when_settled(std::uint64_t version, const WorkerInfo& worker, const Answer& answer);
  void settle(std::uint64_t version);
  void check_settled();
  void answer_join(const WorkerInfo& worker, const Answer& answer);
  void answer_settled(const Settling& settled);
  void fail_waiting(const absl::Status& status);

  // membership_seeds.cc
  using OnResolved =
      std::function<void(MembershipCore&, const absl::StatusOr<std::vector<std::string>>&)>;
  void resolve(const std::string& seed, OnResolved then);
  void ask_seeds();
  bool is_in_round(std::uint64_t round) const;
  void greet_seed(std::size_t seed, const absl::StatusOr<std::vector<std::string>>& addresses);
  void check_round();
  void finish_round();
  void look_at_seeds();
  void look_for_founder(std::size_t seed, const std::string& address);
  void on_founder_found(std::size_t seed, const std::string& address,
                        const absl::StatusOr<SeedRound::Greeting>& greeting);
  void say_alone(std::chrono::nanoseconds since);
  std::string place_text() const;
  std::vector<std::string> seeds_without_member() const;
  void invite();
  void invite_at_seed(const std::string& seed);
  void invite_at(const Contact& contact, const std::string& seed);
  void on_invited(const std::string& address, const std::string& seed,
                  const absl::StatusOr<std::string>& reply);

  // membership_core.cc
  bool may_succeed(const WorkerInfo& from, const MemberView& view) const;
  void handle_update(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void fetch_list();
  void take_list(const WorkerInfo& from, MemberView view);
  void tell_list(const WorkerInfo& behind);
  std::vector<Departed> departed_since(const MemberView& before) const;
  void adopt(MemberView view);
  void forget_absent();
  void be_removed(const absl::Status& reason);
  bool is_lost(const WorkerInfo& worker) const { return lost_.count(worker.incarnation) > 0; }
  /// As this worker tells others; empty: it cannot say.
  std::string why_lost(const WorkerInfo& worker) const;
  const Member* lowest_alive() const;
  void snapshot();
  MembershipState public_state() const;

  // membership_lead.cc
  void elect();
  bool was_handed_over() const;
  void take_over();
  void ask_for_lists();
  std::vector<WorkerInfo> awaited_workers() const;
  void on_list(const WorkerInfo& from, const absl::StatusOr<std::string>& reply);
  void finish_take_over();
  MemberView without_lost(MemberView view) const;
  void coordinate(MemberView view);
  void renew();
  void put_in_force(MemberView view);
  void publish();
  void publish_to(const Member& member);
  void on_published(const WorkerInfo& to, std::uint64_t version, const absl::Status& status);
  void on_refused(const WorkerInfo& to, const absl::Status& status);
  void drop(const WorkerInfo& worker, Departure how);

  // membership_votes.cc
  void stand();
  void on_vote(std::uint64_t term, const absl::StatusOr<std::string>& reply);
  void check_votes();
  bool is_let_in();
  bool believes(const WorkerInfo& from) const;
  void handle_vote(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void propose(const MemberView& next);
  void offer();
  void on_offered(const WorkerInfo& to, std::uint64_t version, const absl::Status& status);
  void stand_again(std::uint64_t refused);
  void check_decided();
  void handle_propose(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void note_dead(Incarnation member);
  void note_restart(const WorkerInfo& again);
  void check_frozen();
  void freeze();
  void ask_the_silent();
  void on_silent_answered(const WorkerInfo& worker, const absl::StatusOr<Standing>& standing);

  // membership_leave.cc
  void handle_leave(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void start_leave(TimePoint deadline, Promise<void> done);
  bool is_alone() const;
  void try_to_leave();
  void leave_as_coordinator();
  void leave_with(MemberView list);
  void leave_as_member(const WorkerInfo& coordinator);
  void check_left();
  void finish_leave(const absl::Status& status);

  // membership_losses.cc
  void lose(const WorkerInfo& worker, const std::string& reason = {});
  void report_lost(const WorkerInfo& worker);
  void report_all_lost();
  bool was_lost(const WorkerInfo& worker) const;
  void lose_again(const std::vector<Member>& joined);
  void handle_lost(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void settle_losses();
  void watch();
  void ask_unlinked();
  void on_unlinked_answered(const WorkerInfo& worker, const absl::StatusOr<Standing>& standing);

  // membership_standing.cc
  using OnStanding = std::function<void(MembershipCore&, const absl::StatusOr<Standing>&)>;
  std::shared_ptr<const Standings> standings_now() const;
  void on_claim(const WorkerInfo& asker, const std::string& address, const Standing& claim);
  bool may_live(const GoneMember& gone) const;
  void note_gone(const MemberView& before);
  void ask(const Member& member, OnStanding on_standing);
  void judge(const WorkerInfo& worker, std::function<void()> then);
  void ask_suspect(const Member& member, int times);
  void end_suspicion(Incarnation incarnation);
  void end_all_suspicions();
  void note_contacts();
  bool is_polling() const;
  bool is_unsure() const { return !suspects_.empty() || is_polling(); }
  void start_poll();
  void finish_poll();
  absl::Status evicted(const std::string& why) const;
  void ask_the_gone();
  bool ask_some_gone();
  void look_around();
  void ask_at_seeds();
  void on_stranger(const Contact& contact, const Standing& claim);
  void ask_entries();
  void stay_in_file(const FileRendezvous::Contents& contents);
  void ask_at(const Contact& contact);
  void on_other_side(const WorkerInfo& worker, const Standing& standing);
  Standing own_standing() const {
    MutexLock lock(mutex_);
    return standings_->own;
  }
  void on_gone_answered(const WorkerInfo& worker, const absl::StatusOr<Standing>& standing);
  bool is_closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }

  ControlPlane& plane_;
  Directory& directory_;
  const MembershipOptions options_;
  Scheduler& scheduler_;
  const std::shared_ptr<Strand> strand_;
  // Null without a file.
  const std::shared_ptr<RendezvousFile> file_;
  // That have been asked for and have not come back to the strand.
  std::atomic<int> file_operations_{0};

  // The rest is touched on the strand only, but for what mutex_ guards.
  State state_ = State::kIdle;
  Member self_;
  MemberView view_;
  // And why, as far as that is known.
  std::map<Incarnation, std::string> lost_;
  std::optional<Coordinator> coordinator_;

  // Joining.
  std::optional<Promise<void>> joined_;
  TimePoint deadline_;
  std::chrono::nanoseconds backoff_{};
  FileRendezvous::Contents file_contents_;
  // Those who are left in this round, to be tried from the back.
  std::vector<Contact> candidates_;
  // Set by an invitation: the only place to ask.
  Contact invited_to_;
  std::size_t tried_ = 0;
  // Where somebody has sent this worker in this round.
  std::set<std::string> sent_to_;
  // Candidates of this round that are dead for certain.
  std::size_t refused_ = 0;
  // A member has answered in this round, and was busy with something else.
  bool has_met_member_ = false;
  bool asking_ = false;
  // Somebody may have this worker on a list.
  bool has_asked_ = false;
  // For whom it has voted meanwhile.
  std::optional<Incarnation> voted_for_;
  // All seeds are asked at once.
  std::optional<SeedRound> seed_round_;
  std::uint64_t seed_round_number_ = 0;
  bool waits_for_other_seeds_ = false;
  // Of the job that this worker has founded in the file.
  JobInstance founding_;
  // When a founder founds.
  TimePoint founds_at_;
  // Whether it looks for others meanwhile, and where it waits for an answer.
  bool looks_at_seeds_ = false;
  std::set<std::string> looked_at_;
  std::string last_failure_;

  // Coordinating.
  std::vector<Waiting> waiting_;
  std::vector<Settling> settling_;
  std::map<Incarnation, std::uint64_t> acknowledged_;
  std::set<Incarnation> publishing_;
  bool publishes_again_ = false;
  bool fetches_list_ = false;
  // Since when a member refuses lists.
  std::map<Incarnation, TimePoint> refusing_;
  // This worker made the list of that version, so it sees to it that all get it.
  std::uint64_t published_version_ = 0;
  bool inviting_ = false;
  // Since it was founded by this worker.
  bool has_had_others_ = false;
  unsigned invite_ticks_ = 0;
  // Who answers at a seed, by the seed; and whether somebody of another job has.
  std::map<std::string, Incarnation> seed_holders_;
  bool has_met_another_job_ = false;
  // Taking over: the members that have not answered, and the newest list so far.
  std::set<Incarnation> awaited_;
  MemberView newest_;

  // In a fixed world, from when it is complete, or somebody has asked for this joiner's vote.
  std::optional<Ballot> ballot_;
  // Whom the proposal is on its way to.
  std::set<Incarnation> offering_;
  bool offers_again_ = false;
  // Nothing can be decided, since too many do not answer.
  bool is_frozen_ = false;
  bool checks_frozen_ = false;
  bool asks_silent_ = false;
  // Since when nothing was decided.
  TimePoint undecided_since_ = TimePoint::max();

  // Whether this worker is still in: who waits for a verdict on whom, and the poll that is on.
  bool was_evicted_ = false;
  std::map<Incarnation, std::vector<std::function<void()>>> suspects_;
  std::optional<StandingPoll> poll_;
  bool polls_again_ = false;
  int polls_in_a_row_ = 0;
  TimePoint claims_heard_from_ = TimePoint::min();
  TimePoint strangers_heard_from_ = TimePoint::min();
  // Who coordinates the larger side that was met last.
  Incarnation other_side_;
  // The latest, the last one last.
  std::deque<GoneMember> gone_;
  bool asks_gone_ = false;
  bool looks_around_ = false;
  int missed_in_file_ = 0;

  // Losses: who has told the coordinator whom it has lost; those that are watched without a link.
  LossReports reports_;
  bool settles_losses_ = false;
  Incarnation reported_to_;
  struct Unlinked {
    int asked_in_vain = 0;
    TimePoint since;
  };
  std::map<Incarnation, Unlinked> unlinked_;
  // The coordinator that has sent lists itself, or has been met as such.
  Incarnation confirmed_;
  bool watches_ = false;

  // Leaving.
  std::optional<Promise<void>> left_;
  TimePoint leave_deadline_;

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  WorkerInfo self_snapshot_ ABSL_GUARDED_BY(mutex_);
  WorkerInfo coordinator_snapshot_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> world_names_ ABSL_GUARDED_BY(mutex_);
  MembershipState public_state_ ABSL_GUARDED_BY(mutex_) = MembershipState::kJoining;
  std::vector<Contact> contacts_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Standings> standings_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<Standings>();
};

}  // namespace sinew::internal
