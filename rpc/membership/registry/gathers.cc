#include "sinew/rpc/membership/registry/gathers.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/membership/registry/registry_bugs.h"

namespace sinew::internal::registry {
namespace {

void finish(const Roster& roster, Incarnation to, Finished end, Effects& out) {
  out.push_back({{to}, roster.token(), std::move(end)});
}

absl::Status absent(const std::string& name, const std::string& key) {
  return absl::UnavailableError(absl::StrCat(
      "worker '", name, "' is not in the job any more, and had not come to gather '", key, "'"));
}

}  // namespace

std::string shown_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  const std::vector<std::string> some(names.begin(),
                                      names.begin() + std::min(names.size(), kShown));
  std::string text = absl::StrCat("'", absl::StrJoin(some, "', '"), "'");
  if (names.size() > kShown) absl::StrAppend(&text, " and ", names.size() - kShown, " more");
  return text;
}

absl::Status Gathers::check(const WorkerInfo& from, const Enter& enter) const {
  const std::vector<std::string>& names = enter.names;
  const bool is_sorted =
      std::adjacent_find(names.begin(), names.end(), std::greater_equal<>()) == names.end();
  if (!is_sorted || names.size() > options_.limits.members ||
      (!names.empty() && !std::binary_search(names.begin(), names.end(), from.name))) {
    return absl::InvalidArgumentError(
        absl::StrCat("a gather's names are sorted, each once, with that of '", from.name, "'"));
  }
  if (enter.key.size() > options_.limits.key_bytes ||
      enter.value.size() > options_.limits.value_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a gather's key has at most ", options_.limits.key_bytes,
                     " bytes, and a value ", options_.limits.value_bytes));
  }
  const auto share = shares_.find(from.incarnation);
  if (share == shares_.end()) return absl::OkStatus();
  if (share->second.gathers.count(enter.id) > 0) {
    return absl::InvalidArgumentError(absl::StrCat("request ", enter.id, " is another gather"));
  }
  if (share->second.gathers.size() >= options_.limits.gathers_each ||
      share->second.bytes + enter.value.size() > options_.limits.bytes_each) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker '", from.name, "' is in too many gathers, or with too many bytes"));
  }
  return absl::OkStatus();
}

void Gathers::enter(const WorkerInfo& from, const Enter& enter, const Roster& roster, Time now,
                    Effects& out) {
  const Id id{enter.names, enter.key};
  auto found = gathers_.find(id);
  const bool is_known = found != gathers_.end() && found->second.entries.count(from.name) > 0;
  if (is_known) {
    Gather& gather = found->second;
    Entry& entry = gather.entries.at(from.name);
    if (entry.from.incarnation != from.incarnation) {
      return finish(roster, from.incarnation,
                    {enter.id,
                     absl::FailedPreconditionError(absl::StrCat(
                         "gather '", enter.key, "' is of an earlier worker '", from.name, "'")),
                     {}},
                    out);
    }
    entry.asked = now;
    if (gather.complete.has_value()) return answer(gather, entry, roster, out);
    out.push_back({{from.incarnation},
                   roster.token(),
                   Missing{enter.id, shown_names(missing(gather, roster))}});
    return;
  }
  absl::Status status = check(from, enter);
  for (const std::string& name : enter.names) {
    const bool has_come = found != gathers_.end() && found->second.entries.count(name) > 0;
    if (status.ok() && !has_come && roster.find(name) == nullptr && !roster.is_returning()) {
      status = absent(name, enter.key);
    }
  }
  if (!status.ok()) return finish(roster, from.incarnation, {enter.id, status, {}}, out);
  Gather& gather = gathers_[id];
  gather.names = enter.names;
  // One that is complete was for those who were there.
  if (gather.complete.has_value()) {
    return finish(roster, from.incarnation,
                  {enter.id,
                   absl::FailedPreconditionError(absl::StrCat("gather '", enter.key, "' is over")),
                   {}},
                  out);
  }
  gather.entries[from.name] = {from, enter.value, enter.id, now};
  Share& share = shares_[from.incarnation];
  share.gathers[enter.id] = id;
  share.bytes += enter.value.size();
  advance(id, roster, now, out);
}

std::vector<std::string> Gathers::missing(const Gather& gather, const Roster& roster) const {
  std::vector<std::string> missing = gather.names.empty() ? roster.names() : gather.names;
  missing.erase(
      std::remove_if(missing.begin(), missing.end(),
                     [&](const std::string& name) { return gather.entries.count(name) > 0; }),
      missing.end());
  return missing;
}

void Gathers::advance(const Id& id, const Roster& roster, Time now, Effects& out) {
  Gather& gather = gathers_.at(id);
  if (gather.complete.has_value() || !missing(gather, roster).empty()) return;
  gather.complete = now;
  for (const auto& [name, entry] : gather.entries) answer(gather, entry, roster, out);
  if (SINEW_REGISTRY_BUG(kGatherForgotten)) forget(id);
}

void Gathers::answer(const Gather& gather, const Entry& entry, const Roster& roster,
                     Effects& out) const {
  if (!entry.asks || roster.find(entry.from.incarnation) == nullptr) return;
  Finished end{entry.id, absl::OkStatus(), {}};
  for (const auto& [name, each] : gather.entries) end.values.push_back(each.value);
  finish(roster, entry.from.incarnation, std::move(end), out);
}

void Gathers::cancel(Incarnation from, std::uint64_t id) {
  const auto share = shares_.find(from);
  if (share == shares_.end()) return;
  const auto found = share->second.gathers.find(id);
  if (found == share->second.gathers.end()) return;
  const Id gather_id = found->second;
  Gather& gather = gathers_.at(gather_id);
  bool is_asked = false;
  for (auto it = gather.entries.begin(); it != gather.entries.end();) {
    const bool is_this = it->second.from.incarnation == from;
    if (is_this) it->second.asks = false;
    is_asked = is_asked || it->second.asks;
    // Who gives up has not come.
    if (is_this && !gather.complete.has_value()) {
      share->second.bytes -= it->second.value.size();
      it = gather.entries.erase(it);
    } else {
      ++it;
    }
  }
  share->second.gathers.erase(found);
  if (!is_asked) forget(gather_id);
}

void Gathers::on_gone(const WorkerInfo& worker, const Roster& roster, Time now, Effects& out) {
  std::vector<Id> hopeless;
  std::vector<Id> open;
  for (auto& [id, gather] : gathers_) {
    const auto entry = gather.entries.find(worker.name);
    const bool has_come = entry != gather.entries.end();
    const bool is_its = has_come && entry->second.from.incarnation == worker.incarnation;
    if (is_its) entry->second.asks = false;
    if (gather.complete.has_value()) continue;
    // All on the list meet: who comes back under the name is another one.
    if (is_its && gather.names.empty()) gather.entries.erase(entry);
    const bool is_named = std::binary_search(gather.names.begin(), gather.names.end(), worker.name);
    (is_named && !has_come ? hopeless : open).push_back(id);
  }
  shares_.erase(worker.incarnation);
  for (const Id& id : hopeless) {
    if (!SINEW_REGISTRY_BUG(kGatherNotFailed))
      fail(id, absent(worker.name, id.second), roster, out);
  }
  for (const Id& id : open) advance(id, roster, now, out);
}

void Gathers::fail(const Id& id, const absl::Status& status, const Roster& roster, Effects& out) {
  for (const auto& [name, entry] : gathers_.at(id).entries) {
    if (entry.asks) finish(roster, entry.from.incarnation, {entry.id, status, {}}, out);
  }
  forget(id);
}

void Gathers::forget(const Id& id) {
  for (const auto& [name, entry] : gathers_.at(id).entries) {
    const auto share = shares_.find(entry.from.incarnation);
    if (share == shares_.end()) continue;
    const auto gather = share->second.gathers.find(entry.id);
    if (gather != share->second.gathers.end() && gather->second == id) {
      share->second.gathers.erase(gather);
    }
    share->second.bytes -= entry.value.size();
  }
  gathers_.erase(id);
}

void Gathers::tick(const Roster& roster, Time now, Effects& out) {
  // Who does not repeat its question has given up.
  std::vector<std::pair<Incarnation, std::uint64_t>> given_up;
  for (const auto& [id, gather] : gathers_) {
    for (const auto& [name, entry] : gather.entries) {
      if (now >= entry.asked + options_.lease)
        given_up.emplace_back(entry.from.incarnation, entry.id);
    }
  }
  for (const auto& [member, id] : given_up) cancel(member, id);
  std::vector<Id> over;
  std::vector<std::pair<Id, std::string>> hopeless;
  for (const auto& [id, gather] : gathers_) {
    const bool is_asked = std::any_of(gather.entries.begin(), gather.entries.end(),
                                      [](const auto& each) { return each.second.asks; });
    const bool is_old = gather.complete.has_value() && now >= *gather.complete + 2 * options_.lease;
    if (!is_asked || is_old) over.push_back(id);
    if (gather.complete.has_value() || roster.is_returning() ||
        SINEW_REGISTRY_BUG(kGatherNotFailed)) {
      continue;
    }
    // A member that was waited for when it began may not have returned.
    for (const std::string& name : missing(gather, roster)) {
      if (roster.find(name) == nullptr) hopeless.emplace_back(id, name);
    }
  }
  for (const auto& [id, name] : hopeless) {
    if (gathers_.count(id) > 0) fail(id, absent(name, id.second), roster, out);
  }
  for (const Id& id : over) {
    if (gathers_.count(id) > 0) forget(id);
  }
}

}  // namespace sinew::internal::registry
