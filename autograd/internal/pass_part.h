#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sinew/autograd/internal/pass_id.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// When a worker that takes part answers the one that asked it to.
enum class Answering : std::uint8_t {
  /// When its part is done.
  kAtTheEnd,
  /// Whenever it has all gradients for the one that asked that those which it has got lead to, to
  /// each call that brought some: for workers whose gradients all come from the one that asked.
  /// Theirs ride in the answers then.
  kInSteps,
};

/// What one worker does in one backward pass, and who is answered when: at the initiator, which
/// asks the others to take part, and at those. Without a graph, gradients, threads or a lock of its
/// own: the caller does what each member function returns, in the order of its fields, and tells
/// what happens. Gradients and those who wait for an answer are numbers of the caller's.
/// docs/autograd.md has the protocol, tests/autograd explores it.
///
/// Copyable, for tests that look at what may follow from each state.
class PassPart {
 public:
  /// The gradients of one message of this worker, or for one of another worker.
  struct Parcel {
    std::uint64_t message = 0;
    std::uint32_t slot = 0;
  };
  using Parcels = std::vector<Parcel>;
  using Outgoing = std::map<Incarnation, Parcels>;
  using Waiter = std::uint32_t;

  /// The roots enter like a message with this number; those of messages start at 1.
  static constexpr std::uint64_t kRoots = 0;

  struct Plan {
    /// Those that gradients come for.
    std::set<std::uint64_t> entries;
    /// The workers to ask.
    std::set<Incarnation> ask;
    /// Those that have nothing to do before this worker has gradients for them: asked together with
    /// the first, they answer in steps.
    std::set<Incarnation> ask_later;
    /// There is something to reduce with other processes before gradients count.
    bool reduces = false;
  };

  struct Send {
    enum class Kind : std::uint8_t { kAsk, kBring };
    Kind kind = Kind::kAsk;
    Incarnation worker;
    Answering answering = Answering::kAtTheEnd;
    Parcels gradients;
  };
  /// To all of `waiters`; the gradients to the first of them.
  struct Answer {
    std::vector<Waiter> waiters;
    Parcels gradients;
    /// This part is not done: it waits for further gradients from the worker that asked.
    bool waits = false;
  };
  /// How the pass has ended here.
  enum class End : std::uint8_t {
    kDone,
    kFailed,
    /// No request was waiting to be told so: it stays until the initiator calls again, or says that
    /// the pass has failed.
    kFailedUntold,
  };
  /// Why it cannot go on: call fail().
  enum class Fault : std::uint8_t {
    kNone,
    /// Gradients came for `fault_message` that the pass expects none for.
    kUnexpected,
    /// A worker waits for gradients that nothing leads to.
    kNothingLeadsThere,
  };
  /// What there is to undo at the reducers when the pass fails.
  enum class Unreduce : std::uint8_t { kNothing, kBegun, kNeverBegun };

  struct Actions {
    Fault fault = Fault::kNone;
    std::uint64_t fault_message = 0;
    /// Add the gradients of leaves to those of the context.
    bool commit = false;
    std::vector<Send> sends;
    /// Then call on_reduced().
    bool reduce = false;
    std::optional<End> end;
    Unreduce unreduce = Unreduce::kNothing;
    /// Tell these, which were asked, that the pass has failed.
    std::vector<Incarnation> abort;
    Answer answer;
    /// Tell these that the pass has failed.
    std::vector<Waiter> failed;
    /// Run the graph with `arrivals`; then on_ran(), what it says, and next(). No other caller is
    /// told to run it until then.
    bool run = false;
    Parcels arrivals;
  };

  PassPart(const PassId& id, Incarnation self) : id_(id), self_(self) {}

  /// Whether prepare() has been called.
  bool is_prepared() const { return prepared_; }
  /// Says who asked, if not this worker itself, and who wants to know of the end.
  Actions prepare(std::optional<Incarnation> requester, Answering answering, Waiter waiter);
  /// Once, after prepare(). `arrivals`: what came with the request, or the roots. It does not run
  /// if the pass has failed before.
  Actions begin(Plan plan, Parcels arrivals);
  /// Gradients for this worker; may come before begin(). `waiter` is answered at once unless the
  /// answers come in steps.
  Actions deliver(Parcels gradients, Answering answering, Waiter waiter);

  /// What the graph yields for `worker`, while the rest runs; it has something for `receivers` in
  /// all. Nothing: keep it for on_ran().
  std::optional<Actions> on_early(Incarnation worker, const Parcels& gradients,
                                  const std::set<Incarnation>& receivers);
  /// Whether on_early() may take some of the gradients for `worker` before others.
  bool may_leave_in_pieces(Incarnation worker) const {
    return worker != self_ && requester_ != worker;
  }
  /// The graph has run, as far as it could, and has yielded what on_early() did not take.
  Actions on_ran(Outgoing outgoing);
  /// After on_ran() or on_reduced(), when what they said is done.
  Actions next();

  /// A worker that was asked, or got gradients, has answered.
  Actions on_answer(Incarnation worker, Parcels gradients, bool waits);
  Actions on_reduced();
  /// The pass has failed, here or elsewhere. Does nothing after the end.
  Actions fail();

  bool has_failed() const { return stage_ == Stage::kFailed; }
  bool has_ended() const { return stage_ >= Stage::kDone; }

  /// What it waits for.
  enum class Wait : std::uint8_t { kBegin, kGraph, kReduction, kOthers };
  Wait wait() const;
  std::size_t missing() const { return missing_.size(); }
  int outstanding() const { return outstanding_; }

  /// Appends what this state is.
  void append_key(std::string& key) const;

 private:
  enum class Stage : std::uint8_t {
    /// Not begun.
    kNew,
    /// Gradients are missing, or the graph runs with the last ones.
    kGraph,
    /// The graph is through. What there is to reduce waits for the rest of the pass.
    kComputed,
    kReducing,
    /// The gradients of leaves count.
    kCommitted,
    kDone,
    kFailed,
  };

  Actions run_if_due();
  Actions run();
  Actions end_if_due();
  std::set<Incarnation> take_to_ask(const Outgoing& outgoing);
  std::vector<Send> send(Outgoing outgoing);
  void answer_with(Actions& actions, Parcels gradients, bool waits);
  Answering answering_of(Incarnation worker) const;

  PassId id_;
  Incarnation self_;
  Stage stage_ = Stage::kNew;
  bool prepared_ = false;
  std::optional<Incarnation> requester_;
  Answering answering_ = Answering::kAtTheEnd;
  bool reduces_ = false;
  /// A thread does what it was told to.
  bool busy_ = false;
  std::set<std::uint64_t> missing_;
  Parcels arrivals_;
  // For the one that asked, with the next answer.
  Parcels reply_;
  // In steps there may be none.
  std::vector<Waiter> waiters_;
  std::set<Incarnation> to_ask_;
  std::set<Incarnation> to_ask_later_;
  // Those of to_ask_later_ at the beginning.
  std::set<Incarnation> in_steps_;
  std::vector<Incarnation> asked_;
  // Calls to other workers that have not ended, and the reduction.
  int outstanding_ = 0;
  // Workers that answer in steps and have not said that they are done.
  std::set<Incarnation> unfinished_;
};

}  // namespace sinew::internal
