#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sinew/autograd/internal/pass_book.h"
#include "sinew/autograd/internal/pass_part.h"

namespace sinew::internal::sim {

/// A tensor that `sender` has sent to `receiver`: its gradient goes back as soon as the gradients
/// of the messages `needs` have come to the receiver. 0: the roots, at the initiator.
struct PassMessage {
  int sender;
  int receiver;
  std::vector<std::uint64_t> needs;
};

/// A backward pass; messages count from 1.
struct PassShape {
  int initiator;
  std::vector<PassMessage> messages;
};

/// What may happen to the passes of a context.
struct PassWorld {
  const char* name;
  int workers;
  /// One after the other; each starts when the one before has ended at its initiator.
  std::vector<PassShape> passes;
  /// How often a part of the graph throws.
  int errors = 0;
  /// How often the time of a pass is over.
  int timeouts = 0;
  /// The worker that may be lost, at any time; -1: none.
  int mortal = -1;
  /// A worker where gradients are reduced with other processes; -1: none.
  int reducer = -1;
  /// Nothing comes between the end of a run of a graph and what follows from it, and calls that are
  /// given up are not cancelled: fewer orders, for larger worlds.
  bool is_coarse = false;
};

/// Workers with what each knows of the passes (PassBook) and does in them (PassPart), and the calls
/// and control calls between them, which arrive in any order. Copyable.
class PassModel {
 public:
  explicit PassModel(const PassWorld& world);

  using Visit = std::function<void(const PassModel& next, const std::string& step)>;
  void each_next(const Visit& visit) const;
  /// Which rule does not hold in this state; empty if all do.
  std::string broken() const;
  /// Lets all that is on its way arrive, and nothing more go wrong: what must be so then.
  std::string settle() const;
  std::string key() const;

 private:
  enum class Work : std::uint8_t { kNone, kRuns, kHasRun, kReduces };
  /// kAborted: without a word of why.
  enum class Outcome : std::uint8_t { kPending, kDone, kFailed, kAborted };
  struct Worker {
    bool alive = true;
    PassBook book{Incarnation{}};
    /// Of the pass that runs, or ran last.
    std::optional<PassPart> part;
    PassId pass;
    /// Passes whose gradients the leaves have.
    std::set<std::uint64_t> added;
    Work work = Work::kNone;
    /// What it has failed with.
    Outcome failure = Outcome::kAborted;
    std::set<std::uint64_t> arrived;
    /// What the run that is under way yields, by worker, and to which it was offered early.
    PassPart::Outgoing yield;
    std::set<Incarnation> offered;
    std::set<std::uint64_t> sent;
  };
  struct Packet {
    enum class Kind : std::uint8_t { kRun, kBring, kAnswer, kAbort, kHeard, kCancel, kLost };
    Kind kind;
    int from;
    int to;
    std::uint64_t serial = 0;
    /// The call that this is, answers or cancels.
    PassPart::Waiter call = 0;
    Answering answering = Answering::kAtTheEnd;
    std::set<std::uint64_t> messages = {};
    /// With a run: passes that have failed. With an answer.
    std::vector<std::uint64_t> failed = {};
    bool waits = false;
    Outcome outcome = Outcome::kDone;

    bool is_error() const { return kind == Kind::kAnswer && outcome != Outcome::kDone; }
    std::string key() const;
  };
  const PassShape& shape(std::uint64_t serial) const { return world_.passes[serial - 1]; }
  PassId id(std::uint64_t serial) const;
  bool takes_part(int worker, std::uint64_t serial) const;
  std::uint64_t running() const { return outcomes_.size(); }
  bool can_start() const;

  bool must_wait(std::size_t packet) const;
  void start();
  void begin(int worker, const PassId& pass);
  PassPart::Plan plan_of(int worker, std::uint64_t serial) const;
  void arrive(std::size_t number);
  void on_run(const Packet& packet);
  void on_bring(const Packet& packet);
  void on_answer(const Packet& packet);
  void on_lost(int worker, int lost);
  std::optional<PassBook::Joining> join(const Packet& packet);
  void end_failed(int worker, const PassId& failed);
  void yield_early(int worker, Incarnation to);
  void run_ends(int worker);
  void fail(int worker, Outcome why);
  void lose(int worker);
  void perform(int worker, const PassPart::Actions& actions);
  void tell_failed(int worker, const std::vector<PassPart::Waiter>& calls);
  void end_pass(int worker, const PassId& pass, PassPart::End end);
  void abort(int worker, const PassId& pass, const std::vector<Incarnation>& asked);
  void commit(int worker);
  void send(int worker, const PassPart::Send& one);
  void answer(int worker, PassPart::Waiter call, std::set<std::uint64_t> messages, bool waits,
              Outcome outcome);
  void end_at_initiator(Outcome outcome);
  std::string check_added() const;
  void break_rule(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  PassWorld world_;
  std::vector<Worker> workers_;
  std::vector<Packet> packets_;
  std::vector<Outcome> outcomes_;
  // Those whose answer has not come: who made each, whom to and in which pass.
  struct Call {
    int from;
    int to;
    std::uint64_t serial;
    bool prepares = false;
    bool is_answered = false;
  };
  std::map<PassPart::Waiter, Call> calls_;
  // How many were made, by pass and the two workers.
  std::map<PassPart::Waiter, int> made_;
  int errors_left_;
  int timeouts_left_;
  bool may_lose_;
  bool settling_ = false;
  std::string wrong_;
};

std::string explore(const PassWorld& world, std::size_t* states);

/// Small ones, all of whose courses are looked at.
const std::vector<PassWorld>& pass_worlds();

}  // namespace sinew::internal::sim
