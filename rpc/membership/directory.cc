#include "sinew/rpc/membership/directory.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostShown = 16;
constexpr std::size_t kMostNameBytesShown = 128;

template <class T>
std::string join_some(const std::vector<T>& items) {
  const std::size_t shown = std::min(items.size(), kMostShown);
  std::string text = absl::StrJoin(items.begin(), items.begin() + shown, ", ");
  if (shown < items.size()) absl::StrAppend(&text, ", and ", items.size() - shown, " more");
  return text.empty() ? "none" : text;
}

}  // namespace

void Directory::replace(std::uint64_t version, const std::vector<Member>& members) {
  MutexLock lock(mutex_);
  if (version <= version_) return;
  version_ = version;
  by_name_.clear();
  name_by_rank_.clear();
  for (const Member& member : members) add_locked(member);
}

void Directory::add_locked(const Member& member) {
  erase_locked(member.worker.name);
  if (member.worker.rank >= 0) {
    const auto holder = name_by_rank_.find(member.worker.rank);
    if (holder != name_by_rank_.end()) erase_locked(std::string(holder->second));
    name_by_rank_[member.worker.rank] = member.worker.name;
  }
  by_name_[member.worker.name] = member;
}

void Directory::erase_locked(const std::string& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return;
  name_by_rank_.erase(found->second.worker.rank);
  by_name_.erase(found);
}

absl::StatusOr<Member> Directory::find(std::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = by_name_.find(std::string(name));
  if (found != by_name_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("no worker is called '",
                                          printable(name, kMostNameBytesShown),
                                          "'; known workers: ", known_names_locked()));
}

absl::StatusOr<Member> Directory::find(std::int32_t rank) const {
  MutexLock lock(mutex_);
  const auto name = name_by_rank_.find(rank);
  if (name != name_by_rank_.end()) return by_name_.at(name->second);
  return absl::NotFoundError(
      absl::StrCat("no worker has rank ", rank, "; known ranks: ", known_ranks_locked()));
}

absl::StatusOr<Member> Directory::find(const WorkerInfo& worker) const {
  MutexLock lock(mutex_);
  const auto found = by_name_.find(worker.name);
  if (found == by_name_.end()) {
    return absl::NotFoundError(
        absl::StrCat("worker '", printable(worker.name, kMostNameBytesShown), "' (rank ",
                     worker.rank, ") is not in the job; known workers: ", known_names_locked()));
  }
  if (found->second.worker.incarnation != worker.incarnation) {
    return absl::NotFoundError(
        absl::StrCat("worker '", worker.name, "' (rank ", worker.rank,
                     ") has been replaced by another process of that name (rank ",
                     found->second.worker.rank, "); look it up again to talk to the new one"));
  }
  return found->second;
}

std::vector<Member> Directory::members() const {
  std::vector<Member> all;
  {
    MutexLock lock(mutex_);
    all.reserve(by_name_.size());
    for (const auto& [name, member] : by_name_) all.push_back(member);
  }
  std::sort(all.begin(), all.end(), [](const Member& a, const Member& b) {
    return std::tie(a.worker.rank, a.worker.name) < std::tie(b.worker.rank, b.worker.name);
  });
  return all;
}

std::string Directory::known_names_locked() const {
  std::vector<std::string> names;
  for (const auto& [name, member] : by_name_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return join_some(names);
}

std::string Directory::known_ranks_locked() const {
  std::vector<std::int32_t> ranks;
  for (const auto& [rank, name] : name_by_rank_) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  return join_some(ranks);
}

}  // namespace sinew::internal
