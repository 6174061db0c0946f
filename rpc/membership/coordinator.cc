#include "sinew/rpc/membership/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostRanksShown = 32;
constexpr std::int32_t kLowestRankGiven = 1;

std::string world_text(int world_size) {
  if (world_size == 0) return "open membership";
  return absl::StrCat("a fixed world of ", world_size);
}

bool same_process(const WorkerInfo& a, const WorkerInfo& b) {
  return a.name == b.name && a.incarnation == b.incarnation;
}

}  // namespace

std::string seconds_text(std::chrono::nanoseconds duration) {
  return absl::StrFormat("%g s", std::chrono::duration<double>(duration).count());
}

Coordinator::Coordinator(std::string job, MemberView view, bool was_complete)
    : job_(std::move(job)), view_(std::move(view)), complete_(was_complete) {
  update_complete();
}

Coordinator::Verdict Coordinator::consider(const JoinAsk& ask) {
  Verdict verdict;
  verdict.worker = ask.member.worker;
  const absl::Status checked = check(ask);
  if (!checked.ok()) {
    verdict.refusal = note_refusal(ask, checked);
    return verdict;
  }
  const auto admitted = complete_ ? Verdict::Kind::kAdmitted : Verdict::Kind::kWaits;
  for (const Member& member : view_.members) {
    const bool same_name = member.worker.name == ask.member.worker.name;
    const bool same_rank = member.worker.rank == ask.member.worker.rank;
    if (same_process(member.worker, ask.member.worker)) {
      // It asks again because our answer got lost.
      verdict.kind = admitted;
      verdict.worker = member.worker;
      return verdict;
    }
    if (same_name || same_rank) verdict.incumbents.push_back(member.worker);
  }
  if (!verdict.incumbents.empty()) {
    verdict.kind = Verdict::Kind::kProbe;
    return verdict;
  }
  Member member = ask.member;
  if (member.worker.rank < 0) member.worker.rank = smallest_free_rank();
  verdict.worker = member.worker;
  refusals_.erase(member.worker.rank);
  const auto place =
      std::find_if(view_.members.begin(), view_.members.end(),
                   [&](const Member& other) { return other.worker.rank > member.worker.rank; });
  view_.members.insert(place, std::move(member));
  ++view_.version;
  update_complete();
  verdict.kind = complete_ ? Verdict::Kind::kAdmitted : Verdict::Kind::kWaits;
  return verdict;
}

absl::Status Coordinator::check(const JoinAsk& ask) const {
  const WorkerInfo& worker = ask.member.worker;
  if (ask.job != job_) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", worker.name, "' belongs to job '", printable(ask.job, 256),
                     "', but the workers here to job '", job_,
                     "'; give all workers of a job the same id and each job its own rendezvous"));
  }
  if (ask.world_size != view_.world_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker '", worker.name, "' wants ", world_text(ask.world_size), ", but this job has ",
        world_text(view_.world_size), "; they do not mix: give all workers the same world size"));
  }
  if (view_.world_size > 0 && (worker.rank < 0 || worker.rank >= view_.world_size)) {
    return absl::InvalidArgumentError(absl::StrCat("worker '", worker.name, "' asks for rank ",
                                                   worker.rank, "; ranks of this job go from 0 to ",
                                                   view_.world_size - 1));
  }
  for (const Member& member : view_.members) {
    // They are drawn, so that this is no accident: what members hold is listed under them.
    if (member.worker.incarnation == worker.incarnation && member.worker.name != worker.name) {
      return absl::PermissionDeniedError(absl::StrCat("worker '", worker.name,
                                                      "' comes with the incarnation of worker '",
                                                      member.worker.name, "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status Coordinator::refuse(const JoinAsk& ask, const WorkerInfo& incumbent) {
  const WorkerInfo& worker = ask.member.worker;
  std::string text;
  if (incumbent.name == worker.name) {
    text = absl::StrCat("name '", worker.name, "' is already used by rank ", incumbent.rank,
                        ", which is alive; choose another name");
  } else {
    text = absl::StrCat("rank ", worker.rank, " is already used by worker '", incumbent.name,
                        "', which is alive; choose another rank for '", worker.name, "'");
  }
  return note_refusal(ask, absl::AlreadyExistsError(text));
}

absl::Status Coordinator::note_refusal(const JoinAsk& ask, absl::Status refusal) {
  const std::int32_t rank = ask.member.worker.rank;
  if (rank >= 0 && rank < view_.world_size) refusals_[rank] = std::string(refusal.message());
  return refusal;
}

bool Coordinator::drop(const WorkerInfo& worker, Departure how, const std::string& reason) {
  const auto found =
      std::find_if(view_.members.begin(), view_.members.end(),
                   [&](const Member& member) { return same_process(member.worker, worker); });
  if (found == view_.members.end()) return false;
  if (how == Departure::kLeft) note_left(view_, found->worker.incarnation);
  if (how == Departure::kLost) note_lost(view_, found->worker.incarnation, reason);
  view_.members.erase(found);
  ++view_.version;
  return true;
}

const Member* Coordinator::find(const WorkerInfo& worker) const {
  for (const Member& member : view_.members) {
    if (same_process(member.worker, worker)) return &member;
  }
  return nullptr;
}

std::vector<int> Coordinator::missing_ranks() const {
  std::vector<int> missing;
  auto member = view_.members.begin();
  for (int rank = 0; rank < view_.world_size; ++rank) {
    while (member != view_.members.end() && member->worker.rank < rank) ++member;
    const bool present = member != view_.members.end() && member->worker.rank == rank;
    if (!present) missing.push_back(rank);
  }
  return missing;
}

absl::Status Coordinator::missing_text(std::chrono::nanoseconds waited) const {
  const std::vector<int> missing = missing_ranks();
  const std::size_t shown = std::min(missing.size(), kMostRanksShown);
  std::string text = absl::StrCat(
      view_.members.size(), " of ", view_.world_size, " workers joined within ",
      seconds_text(waited), "; missing ranks: ",
      absl::StrJoin(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < missing.size()) absl::StrAppend(&text, ", and ", missing.size() - shown, " more");
  for (const int rank : missing) {
    const auto refusal = refusals_.find(rank);
    if (refusal == refusals_.end()) continue;
    absl::StrAppend(&text, "; rank ", rank, " was refused: ", refusal->second);
    break;
  }
  return absl::DeadlineExceededError(text);
}

std::int32_t Coordinator::smallest_free_rank() const {
  std::int32_t rank = kLowestRankGiven;
  for (const Member& member : view_.members) {
    if (member.worker.rank == rank) ++rank;
  }
  return rank;
}

void Coordinator::update_complete() {
  const bool is_full = static_cast<int>(view_.members.size()) == view_.world_size;
  complete_ = complete_ || view_.world_size == 0 || is_full;
  if (!is_full || !view_.world_names.empty()) return;
  for (const Member& member : view_.members) view_.world_names.push_back(member.worker.name);
}

}  // namespace sinew::internal
