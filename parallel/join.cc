#include "sinew/parallel/join.h"

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

  void enter(const std::vector<Joinable*>& joinables, JoinSession& session) {
    for (Joinable* joinable : joinables) {
      joinable->enter_join(entered_.empty() ? &session : nullptr);
      entered_.push_back(joinable);
    }
  }

 private:
  std::vector<Joinable*> entered_;
};

}  // namespace

JoinSession::JoinSession(ProcessGroup group, const JoinOptions& options)
    : group_(std::move(group)), options_(options) {}

JoinRound JoinSession::exchange(const JoinRound& own, bool active) {
  const int size = group_.size();
  const at::Tensor words = at::zeros({size + kSlots}, at::kLong);
  std::int64_t* word = words.data_ptr<std::int64_t>();
  std::int64_t* flags = word + size;
  if (active) {
    word[group_.rank()] = 1;
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
    ++round.active;
    round.root = rank;
  }
  if (round.active == 0) return round;
  last_root_ = round.root;
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
  JoinSession session(joinables.front()->join_group(), options);
  Entered entered;
  entered.enter(joinables, session);
  body();
  for (JoinRound round = session.listen(); round.active > 0; round = session.listen()) {
    for (Joinable* joinable : joinables) {
      joinable->shadow(round);
      if (round.agrees) break;
    }
  }
  for (Joinable* joinable : joinables) joinable->finish_join(session.last_root());
}

}  // namespace sinew::parallel
