#include "sinew/parallel/join.h"

#include <cstddef>
#include <deque>
#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel {
namespace {

// What follows the flags of all ranks.
enum Slot { kReduces, kRecords, kInContext, kAgrees, kSlots };

bool agreed(std::int64_t count, int active, const char* what) {
  if (count == 0 || count == active) return count != 0;
  throw RpcError(ErrorCode::kFailedPrecondition,
                 absl::StrFormat("%d of the %d ranks that have inputs %s in this step, and the "
                                 "others do not: all ranks of a data-parallel module do the same",
                                 count, active, what));
}

/// Ends what joinables have entered.
class Entered {
 public:
  Entered() = default;
  ~Entered() {
    for (Joinable* joinable : entered_) joinable->leave_join();
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

  void enter(Joinable& joinable, JoinSession& session) {
    joinable.enter_join(&session);
    entered_.push_back(&joinable);
  }

 private:
  std::vector<Joinable*> entered_;
};

}  // namespace

JoinSession::JoinSession(ProcessGroup group, const JoinOptions& options, int joinable,
                         std::shared_ptr<int> last_root)
    : group_(std::move(group)),
      options_(options),
      joinable_(joinable),
      last_root_(std::move(last_root)) {}

JoinRound JoinSession::exchange(const JoinRound& own, bool active) {
  const int size = group_.size();
  const at::Tensor words = at::zeros({size + kSlots}, at::kLong);
  std::int64_t* word = words.data_ptr<std::int64_t>();
  std::int64_t* flags = word + size;
  if (active) {
    word[group_.rank()] = 1 + joinable_;
    flags[kReduces] = own.reduces;
    flags[kRecords] = own.records;
    flags[kInContext] = own.in_context;
    flags[kAgrees] = own.agrees;
  }
  const at::Tensor sent = internal::group_tensor(group_, words);
  group_.all_reduce(sent);
  words.copy_(sent);
  JoinRound round;
  std::vector<int> out;
  for (int rank = 0; rank < size; ++rank) {
    if (word[rank] == 0) {
      out.push_back(rank);
      continue;
    }
    const int joinable = static_cast<int>(word[rank]) - 1;
    if (round.active > 0 && joinable != round.joinable) {
      throw RpcError(ErrorCode::kFailedPrecondition,
                     absl::StrFormat("rank %d takes a step of number %d of what join() was given, "
                                     "and rank %d one of number %d: all ranks do the same",
                                     round.root, round.joinable, rank, joinable));
    }
    ++round.active;
    round.root = rank;
    round.joinable = joinable;
  }
  if (round.active == 0) return round;
  *last_root_ = round.root;
  if (!out.empty() && options_.early_termination == EarlyTermination::kThrow) {
    throw RpcError(ErrorCode::kAborted,
                   absl::StrFormat("rank %s %s no inputs left, which ends the loop on all ranks",
                                   absl::StrJoin(out, ", "), out.size() == 1 ? "has" : "have"));
  }
  round.reduces = agreed(flags[kReduces], round.active, "reduce gradients");
  round.records = agreed(flags[kRecords], round.active, "record a graph");
  round.in_context = agreed(flags[kInContext], round.active, "work in an autograd context");
  round.agrees = agreed(flags[kAgrees], round.active, "clip or unscale gradients");
  return round;
}

JoinRound JoinSession::announce(const JoinRound& round) { return exchange(round, true); }

JoinRound JoinSession::listen() { return exchange({}, false); }

void join(const std::vector<Joinable*>& joinables, const JoinOptions& options,
          const std::function<void()>& body) {
  if (joinables.empty()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "join() needs what takes part in it: a DistributedDataParallel, mostly");
  }
  const auto last_root = std::make_shared<int>(0);
  std::deque<JoinSession> sessions;
  Entered entered;
  for (Joinable* joinable : joinables) {
    sessions.emplace_back(joinables.front()->join_group(), options,
                          static_cast<int>(sessions.size()), last_root);
    entered.enter(*joinable, sessions.back());
  }
  body();
  JoinSession& session = sessions.front();
  for (JoinRound round = session.listen(); round.active > 0; round = session.listen()) {
    joinables.at(static_cast<std::size_t>(round.joinable))->shadow(round);
  }
  for (Joinable* joinable : joinables) joinable->finish_join(session.last_root());
}

}  // namespace sinew::parallel
