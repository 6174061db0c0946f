#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "sinew/rpc/base/credit.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/calls/received_envelope.h"
#include "sinew/rpc/link/link_runner.h"

namespace sinew::proto {
class Envelope;
class Error;
}  // namespace sinew::proto

namespace sinew::internal {

class StateReport;
class WorkerServices;

/// Calls over the link with one incarnation of another worker, both ways: those that this worker
/// makes, until they are answered, and those that it serves, until their reply has left. That each
/// frame arrives once is the link's business, so a call runs at most once. Thread-safe.
class CallLink final : public LinkUser,
                       public ReplySink,
                       public std::enable_shared_from_this<CallLink> {
 public:
  CallLink(WorkerServices& services, std::shared_ptr<LinkRunner> runner);
  ~CallLink() override;

  /// Rank -1: it is no member, as far as is known here.
  WorkerInfo peer() const;
  LinkRunner& runner() { return *runner_; }
  void set_rank(std::int32_t rank) { rank_.store(rank, std::memory_order_release); }
  /// False once the peer is lost, or has left.
  bool alive() const { return retired().ok(); }
  /// Why not.
  absl::Status retired() const;
  /// The link has ended, also while it is being found out which end is out of the job.
  bool is_over() const { return runner_->ended(); }

  // --- Calls that this worker makes.

  /// Starts a call. Its id is set here. Whatever goes wrong reaches the pending call.
  /// Lane::kControl: one by which workers run the job, and which no user call can hold up.
  void start_call(std::unique_ptr<PendingCall> call, proto::Envelope& envelope,
                  std::vector<absl::Cord> payloads, Lane lane);
  /// One way. Arrives once, unless the link ends before. See WorkerServices::send_note().
  void send_note(proto::Envelope& envelope, OnCarrierEnd on_end);
  /// Completes when a call with arguments of so many bytes finds room, or the link has ended.
  Future<void> ready(std::uint64_t bytes);

  // --- Calls that it serves.

  /// Frames that a guest may have waiting here until it becomes a member, per lane (their bytes:
  /// LinkTable::kMaxGuestBytes); until a call's deadline, and for a lease (kMinHeldTime at least).
  /// Then calls are refused, and if there is a note, which cannot be refused, the link ends. Layers
  /// never come here: see kMaxControlFrames.
  static constexpr std::size_t kMaxHeldFrames = 1024;
  static constexpr std::chrono::nanoseconds kMinHeldTime = std::chrono::seconds(5);
  /// Control frames of the peer that may be here until they are handled, calls until their answers
  /// have arrived; with the answers' bytes. More than any worker has: further ones are dropped. A
  /// note has its receipt only once it has been handled, and a layer has few on their way to one
  /// peer (16 each), so also where this worker is slow only an attacker reaches this limit.
  static constexpr std::int64_t kMaxControlFrames = 16384;
  static constexpr std::int64_t kMaxControlBytes = std::int64_t{64} << 20;

  /// The peer has become a member: what it has sent before is served.
  void on_member(std::int32_t rank);
  // ReplySink
  bool may_start(const std::shared_ptr<Invocation>& invocation) override;
  void watch_queued(const Invocation& invocation) override;
  void on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end) override;
  void on_error(std::uint64_t call_id, const proto::Error& error) override;
  bool wants_envelope() const override { return true; }
  AuthenticatedPeer remote() const override { return runner_->remote(); }
  /// Workers send none.
  const CallContext::Metadata& metadata() const override;

  /// Whether control calls of the peer are being served, or their answers on their way.
  bool is_answering() const;

  // --- For operators.

  /// The link, and the calls over it.
  void report(StateReport& report) const;
  /// Cancels the call of the peer with that number. False: none is being served.
  bool cancel_call_of_peer(std::uint64_t id);

  // --- The end.

  /// The peer says goodbye, or is said to be gone: calls to it fail from now on, and none that it
  /// makes is started any more: its control calls are refused. What was answered still leaves.
  /// Idempotent.
  /// kMayCome: what it has answered may be on its way, so control calls that wait for it fail with
  /// the link only.
  enum class LastAnswers { kNone, kMayCome };
  void retire(const absl::Status& reason, LastAnswers last = LastAnswers::kNone);
  /// Ends the link.
  void close(const absl::Status& reason);

  // LinkUser
  void on_frames(std::vector<Inbound> frames) override;
  void on_frames_ended(absl::Span<const LinkOutputs::Ended> frames) override;
  void on_beat(std::uint64_t beat) override;
  void on_room() override;
  void on_up() override {}
  void on_unreached() override;
  void on_unreachable(const absl::Status& reason) override;
  void on_suspected(bool suspected) override;
  void on_end(Gone cause, const absl::Status& reason) override;

 private:
  struct Content;
  struct Entry {
    std::unique_ptr<PendingCall> call;
    std::uint64_t id = 0;
    Lane lane = Lane::kCalls;
    std::shared_ptr<Content> content;
    // Registrations with call->cancellations, in that order.
    std::vector<std::uint64_t> cancellation_numbers;
  };
  struct Waiter {
    std::uint64_t bytes;
    Promise<void> promise;
  };
  struct HeldCall {
    ArrivedCall call;
    GuestRoom guest_room;
    Clock::TimePoint held_until;
  };
  struct ArrivedControl {
    ReceivedEnvelope envelope;
    Credit credit;
    Clock::TimePoint held_until;
    // Of a note: tells the link that it has been handled.
    Credit handled;
    GuestRoom guest_room;
  };

  /// A frame has ended, and something depends on it.
  struct FrameEnded {
    Content* content = nullptr;
    FrameEnd how = FrameEnd::kNotSent;
    std::vector<OnCarrierEnd> on_end;
    // What it held, if it was too large a call.
    Entry too_large;
  };
  using Entries = absl::InlinedVector<Entry, 1>;

  // Calls that are made: call_link.cc.
  std::optional<std::size_t> register_call(std::uint64_t id, Entry entry);
  bool begin_sending(std::uint64_t id, const std::shared_ptr<Content>& content);
  void send_registered(const std::shared_ptr<Content>& content, OutgoingFrame frame,
                       LinkRunner::WhenFull when_full, Clock::TimePoint deadline);
  void end_unsent(std::uint64_t id, Content& content, const absl::Status& status);
  bool take_entry_locked(std::uint64_t id, Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Entry take_entry(std::uint64_t id);
  Entries take_answered(const std::vector<Inbound>& frames);
  void watch_cancellations(std::uint64_t id, const std::vector<CancellationToken>& tokens);
  static void forget_cancellations(const Entry& entry);
  /// Ends a call whose frame may be anywhere on its way.
  void abandon(std::uint64_t id, Entry entry, const absl::Status& status, ErrorOrigin origin);
  bool give_up(std::uint64_t id, Lane lane, FrameToken token);
  void end_with_error(Entry entry, const absl::Status& status, Execution execution,
                      ErrorOrigin origin);
  /// Of what fails since the link is over, or about to be.
  ErrorOrigin origin_of_end() const;
  void end(Entry& entry, CarrierEnd how);
  void write_trace(const Entry& entry) const;
  void end_after_frame(Entry& entry);
  void note_end_locked(Content& content, FrameEnd how, std::vector<FrameEnded>& told)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void tell_end(FrameEnded& ended);
  void count_request();
  void cancel_call(std::uint64_t id, const absl::Status& reason);
  void send_cancel(std::uint64_t id, std::uint64_t number);
  void fail_all(const absl::Status& reason, LastAnswers last = LastAnswers::kNone);
  void arm_deadline_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_deadline();
  void receive_reply(Inbound frame, Entry entry);
  void reach_again();

  // Calls that are served: call_link_serve.cc.
  CallerOrder::Ticket take_ticket(const Inbound& frame);
  std::optional<ArrivedCall> receive_request(Inbound frame, Clock::TimePoint now,
                                             CallerOrder::Ticket ticket);
  bool hold(ArrivedCall& call, GuestRoom guest_room);
  void begin(std::vector<ArrivedCall> calls);
  void receive_control(Inbound frame);
  void end_lost(const Inbound& frame, Entry answered);
  Clock::TimePoint held_until(Clock::TimePoint deadline) const;
  void arm_held_locked(Clock::TimePoint when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void refuse_held();
  void cancel_served(std::uint64_t id);
  void note_cancelled_locked(std::uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool take_cancelled_locked(std::uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Credit> take_control_room(std::uint64_t bytes);
  Credit occupy_control(std::int64_t frames, std::int64_t bytes);
  void serve_or_hold(ArrivedControl control);
  void serve_held_control_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void serve_control(ArrivedControl control);
  void serve_control_here(ArrivedControl control);
  absl::Status check_control_caller(const std::string& method) const;
  void serve_control_call(ArrivedControl control);
  void refuse(std::uint64_t call_id, Lane lane, const absl::Status& status, Execution execution,
              Credit credit = Credit());
  void refuse_call(std::uint64_t call_id, RequestRoom room, const absl::Status& status);
  void refuse_control(ArrivedControl control, const absl::Status& status);
  void refuse_retired(ArrivedControl control, const absl::Status& status);
  void send_reply(const std::shared_ptr<Content>& content);
  bool is_member();
  // call_link_queue.cc
  void watch_queue_locked(Clock::TimePoint when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void look_at_queue();
  void post_held();
  void end_served();

  WorkerServices& services_;
  const std::shared_ptr<LinkRunner> runner_;
  const std::string name_;
  const Incarnation incarnation_;
  /// Null where no method waits for its turn.
  const std::shared_ptr<CallerOrder> order_;
  std::atomic<std::int32_t> rank_{-1};
  std::atomic<std::uint64_t> last_id_{0};
  // The latest beat of the peer that waits for its answer; 0: none.
  std::atomic<std::uint64_t> unanswered_beat_{0};
  // Of the peer's control frames, as kMaxControlFrames counts them.
  std::atomic<std::int64_t> control_frames_{0};
  std::atomic<std::int64_t> control_bytes_{0};
  std::atomic<bool> flood_is_told_{false};

  mutable Mutex mutex_;
  absl::Status retired_ ABSL_GUARDED_BY(mutex_);
  // Calls that this worker makes.
  absl::flat_hash_map<std::uint64_t, Entry> pending_ ABSL_GUARDED_BY(mutex_);
  // The last one is none's: a set that never is empty keeps its memory from call to call.
  absl::btree_set<std::pair<Clock::TimePoint, std::uint64_t>> deadlines_ ABSL_GUARDED_BY(mutex_) = {
      {Clock::TimePoint::max(), 0}};
  Clock::TimePoint armed_for_ ABSL_GUARDED_BY(mutex_) = Clock::TimePoint::max();
  TimerQueue::TimerId deadline_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  // Calls that it serves.
  absl::flat_hash_map<std::uint64_t, std::shared_ptr<Invocation>> served_ ABSL_GUARDED_BY(mutex_);
  // Cancelled when nothing was known of them: calls that are done, but also such as the link has
  // handed over and another thread has not entered yet. The latest ones, also in their order.
  absl::flat_hash_set<std::uint64_t> cancelled_early_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::uint64_t> cancelled_order_ ABSL_GUARDED_BY(mutex_);
  // For those among them that wait for a thread.
  Clock::TimePoint queue_armed_for_ ABSL_GUARDED_BY(mutex_) = Clock::TimePoint::max();
  TimerQueue::TimerId queue_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  // Until the peer's replies have room.
  std::vector<std::shared_ptr<Invocation>> held_ ABSL_GUARDED_BY(mutex_);
  // Until it is a member.
  std::deque<HeldCall> guest_calls_ ABSL_GUARDED_BY(mutex_);
  // There are such. Written under the lock.
  std::atomic<bool> guest_calls_wait_{false};
  std::vector<ArrivedControl> held_control_ ABSL_GUARDED_BY(mutex_);
  Clock::TimePoint held_armed_for_ ABSL_GUARDED_BY(mutex_) = Clock::TimePoint::max();
  TimerQueue::TimerId held_timer_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sinew::internal
