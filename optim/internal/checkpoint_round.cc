#include "sinew/optim/internal/checkpoint_round.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {

using optim::Checkpoint;
using optim::SaveOptions;

namespace {

constexpr std::size_t kMaxNoteBytes = 4096;

}  // namespace

std::vector<CheckpointId> whole_checkpoints(const std::vector<CheckpointParts>& owners) {
  if (owners.empty()) return {};
  std::vector<CheckpointId> whole = owners.front().whole;
  for (const CheckpointParts& owner : owners) {
    std::vector<CheckpointId> both;
    std::set_intersection(whole.begin(), whole.end(), owner.whole.begin(), owner.whole.end(),
                          std::back_inserter(both));
    whole = std::move(both);
  }
  return whole;
}

std::vector<CheckpointParts> CheckpointRound::ask() const {
  return call_parts<&LocalOptimizer::checkpoints>(parts_, options_, folder_);
}

std::uint64_t CheckpointRound::next_number(const std::vector<CheckpointParts>& owners) const {
  std::uint64_t last = 0;
  for (const CheckpointParts& owner : owners) last = std::max(last, owner.last);
  // All trainers that save ask the same owner.
  const auto first =
      std::min_element(parts_.begin(), parts_.end(),
                       [](const auto& a, const auto& b) { return a.owner.name < b.owner.name; });
  return first->optimizer.with(options_).call<&LocalOptimizer::next_checkpoint>(folder_, last + 1);
}

Future<Checkpoint> CheckpointRound::save(const SaveOptions& how) const {
  if (how.note.size() > kMaxNoteBytes) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("the note of a checkpoint has %d bytes, but at most %d fit",
                                   how.note.size(), kMaxNoteBytes));
  }
  if (how.kept == 0) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "SaveOptions::kept is 0, but at least the new checkpoint must stay");
  }
  const std::vector<CheckpointParts> before = ask();
  const CheckpointPlace place{folder_, {next_number(before), random_secret()}};
  call_parts<&LocalOptimizer::begin_save>(parts_, options_, place,
                                          CheckpointNotes{how.note, how.grad_scaler});
  std::vector<CheckpointId> whole = whole_checkpoints(before);
  whole.push_back(place.id);
  std::sort(whole.begin(), whole.end());
  const std::uint64_t oldest = whole[whole.size() - std::min(whole.size(), how.kept)].number;
  return start_parts<&LocalOptimizer::finish_save>(parts_, options_, place.id)
      .then([parts = parts_, options = options_, folder = folder_,
             oldest](const std::vector<OwnerAnswer<void>>& written) {
        throw_if_any_failed(parts, written);
        return start_parts<&LocalOptimizer::forget_before>(parts, options, folder, oldest);
      })
      .then([worker = worker_, parts = parts_, folder = folder_,
             saved = Checkpoint{place.id.number, how.note, how.grad_scaler}](
                const std::vector<OwnerAnswer<void>>& forgotten) {
        try {
          throw_if_any_failed(parts, forgotten);
        } catch (const RpcError& error) {
          // It is saved; the files that are left are found by the next one.
          WorkerAccess::services(worker)->log(
              absl::StrFormat("old checkpoints in '%s' are left: %s", folder, error.message()));
        }
        return saved;
      });
}

std::optional<Checkpoint> CheckpointRound::try_load(const CheckpointId& id,
                                                    std::string& why_not) const {
  const std::uint64_t load = random_secret();
  const auto prepared = ask_parts<&LocalOptimizer::prepare_load>(
      parts_, options_, CheckpointPlace{folder_, id}, load);
  bool is_damaged = false;
  bool has_failed = false;
  for (const auto& answer : prepared) {
    if (!answer.error) continue;
    has_failed = true;
    is_damaged = is_damaged || answer.error->code == ErrorCode::kDataLoss ||
                 answer.error->code == ErrorCode::kNotFound;
  }
  if (!has_failed) {
    call_parts<&LocalOptimizer::apply_load>(parts_, options_, load);
    const CheckpointNotes& notes = *prepared.front().result;
    return Checkpoint{id.number, notes.note, notes.grad_scaler};
  }
  // An owner that cannot be told has nothing, or gives it up with the next load.
  static_cast<void>(ask_parts<&LocalOptimizer::drop_load>(parts_, options_, load));
  try {
    throw_if_any_failed(parts_, prepared);
  } catch (const RpcError& error) {
    if (!is_damaged) throw;
    why_not = absl::StrCat("number ", id.number, ": ", error.message());
  }
  return std::nullopt;
}

Checkpoint CheckpointRound::load(std::optional<std::uint64_t> number) const {
  const std::vector<CheckpointParts> owners = ask();
  std::vector<CheckpointId> whole = whole_checkpoints(owners);
  if (number) {
    whole.erase(std::remove_if(whole.begin(), whole.end(),
                               [&](const CheckpointId& id) { return id.number != *number; }),
                whole.end());
  }
  std::vector<std::string> damaged;
  for (auto id = whole.rbegin(); id != whole.rend(); ++id) {
    std::string why_not;
    if (auto loaded = try_load(*id, why_not)) return *std::move(loaded);
    WorkerAccess::services(worker_)->log(
        absl::StrFormat("a checkpoint in '%s' cannot be loaded: %s", folder_, why_not));
    damaged.push_back(std::move(why_not));
  }
  throw_none(owners, number, damaged);
}

void CheckpointRound::throw_none(const std::vector<CheckpointParts>& owners,
                                 std::optional<std::uint64_t> number,
                                 const std::vector<std::string>& damaged) const {
  const std::string wanted = number ? absl::StrCat("number ", *number, " of the checkpoints")
                                    : std::string("a checkpoint");
  if (!damaged.empty()) {
    throw RpcError(ErrorCode::kDataLoss, absl::StrFormat("%s in '%s' cannot be loaded: %s", wanted,
                                                         folder_, absl::StrJoin(damaged, "; ")));
  }
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const std::string numbers = absl::StrJoin(
        owners[i].whole, ", ",
        [](std::string* text, const CheckpointId& id) { absl::StrAppend(text, id.number); });
    lines.push_back(absl::StrFormat("'%s' has [%s]", parts_[i].owner.name, numbers));
  }
  throw RpcError(ErrorCode::kNotFound,
                 absl::StrFormat("there is no %s in '%s' that all owners have: %s",
                                 number ? absl::StrCat("checkpoint ", *number) : "checkpoint",
                                 folder_, absl::StrJoin(lines, ", ")));
}

}  // namespace sinew::internal
