#include "sinew/launch/ctl/stuck.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/launch/ctl/columns.h"
#include "sinew/launch/ctl/stuck_calls.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using Findings = std::vector<Finding>;

// What goes on moves in that time.
constexpr std::chrono::milliseconds kBetweenLooks(300);

std::string list(const std::set<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(absl::StrCat("'", cut_text(name), "'"));
  return absl::StrJoin(quoted, ", ");
}

void find_silent(const JobView& job, Findings& found) {
  for (const WorkerView& view : job) {
    if (view.answered.ok()) continue;
    found.push_back(
        {Finding::Kind::kSilent,
         {absl::StrCat("worker '", cut_text(view.name), "' at ", cut_text(view.address),
                       " does not answer: ", cut_text(std::string(view.answered.message())))}});
  }
}

void find_registry(const JobView& job, Findings& found) {
  std::set<std::string> waiting;
  for (const WorkerView& view : job) {
    if (view.state.membership() == "SUSPECTED") waiting.insert(view.name);
  }
  if (waiting.empty()) return;
  found.push_back({Finding::Kind::kRegistry,
                   {"the registrar does not answer: no worker can join or be evicted",
                    absl::StrCat("as seen by ", list(waiting))}});
}

// ---- Barriers.

void find_gathers(const JobView& job, std::uint64_t patience_us, Findings& found) {
  struct Gather {
    std::set<std::string> wanted;
    std::set<std::string> come;
    std::uint64_t age_us = 0;
  };
  std::map<std::string, Gather> gathers;
  std::set<std::string> members;
  for (const WorkerView& view : job) {
    members.insert(view.name);
    for (const proto::GatherState& each : view.state.gathers()) {
      Gather& gather = gathers[each.key()];
      gather.wanted.insert(each.names().begin(), each.names().end());
      gather.come.insert(view.name);
      gather.age_us = std::max(gather.age_us, static_cast<std::uint64_t>(each.age_us()));
    }
  }
  for (const auto& [key, gather] : gathers) {
    if (gather.age_us < patience_us) continue;
    const std::set<std::string>& wanted = gather.wanted.empty() ? members : gather.wanted;
    std::set<std::string> missing;
    std::set_difference(wanted.begin(), wanted.end(), gather.come.begin(), gather.come.end(),
                        std::inserter(missing, missing.end()));
    if (missing.empty()) continue;
    found.push_back(
        {Finding::Kind::kGather,
         {absl::StrCat("a barrier waits for ", list(missing), " since ", time_text(gather.age_us)),
          absl::StrCat("in it: ", list(gather.come))}});
  }
}

// ---- Collectives.

struct Rank {
  std::string worker;
  std::uint64_t called = 0;
  std::map<std::uint64_t, std::string> under_way;
};
using Groups = std::map<std::string, std::map<int, Rank>>;

Groups groups_of(const JobView& job) {
  Groups groups;
  for (const WorkerView& view : job) {
    for (const proto::GroupState& group : view.state.groups()) {
      Rank& rank = groups[group.name()][group.rank()];
      rank.worker = view.name;
      rank.called = group.called();
      for (const proto::GroupOperation& operation : group.operations()) {
        if (operation.number() > 0) rank.under_way[operation.number()] = operation.what();
      }
    }
  }
  return groups;
}

void find_collectives(const JobView& before, const JobView& now, Findings& found) {
  const Groups earlier = groups_of(before);
  for (const auto& [name, ranks] : groups_of(now)) {
    const auto then = earlier.find(name);
    if (then == earlier.end()) continue;
    std::map<std::uint64_t, std::string> waiting;
    for (const auto& [number, rank] : ranks) {
      const auto same = then->second.find(number);
      if (same == then->second.end()) continue;
      for (const auto& [operation, what] : rank.under_way) {
        if (same->second.under_way.count(operation) > 0) waiting.emplace(operation, what);
      }
    }
    // The first one that waits holds up the others.
    if (waiting.empty()) continue;
    const auto& [operation, what] = *waiting.begin();
    std::set<std::string> come;
    std::set<std::string> missing;
    for (const auto& [number, rank] : ranks) {
      (rank.called >= operation ? come : missing)
          .insert(absl::StrCat(rank.worker, " (rank ", number, ")"));
    }
    const bool all_have = missing.empty();
    found.push_back(
        {Finding::Kind::kCollective,
         {absl::StrCat("group '", cut_text(name), "': ", cut_text(what), ", its collective number ",
                       operation,
                       all_have ? ", does not end although all ranks have called it"
                                : absl::StrCat(", has not been called by ", list(missing))),
          absl::StrCat("in it: ", list(come))}});
  }
}

// ---- Links and queues.

void find_links(const JobView& job, Findings& found) {
  for (const WorkerView& view : job) {
    for (const proto::LinkState& link : view.state.links()) {
      const std::string ends = absl::StrCat("from worker '", cut_text(view.name), "' to '",
                                            cut_text(link.peer().name()), "': ");
      if (link.suspected()) {
        found.push_back(
            {Finding::Kind::kLink, {absl::StrCat(ends, "it has not answered for half a lease")}});
      } else if (link.state() != "up" && link.frames() > 0) {
        found.push_back({Finding::Kind::kLink,
                         {absl::StrCat(ends, link.frames(), " messages wait for a connection"),
                          cut_text(link.why_down())}});
      }
      if (link.calls_without_room() > 0) {
        found.push_back({Finding::Kind::kLink,
                         {absl::StrCat(ends, link.calls_without_room(),
                                       " calls wait for room: ", size_text(link.request_bytes()),
                                       " of ", size_text(link.window_bytes()),
                                       " are on their way, or wait for a thread there")}});
      }
      if (link.replies_blocked()) {
        found.push_back(
            {Finding::Kind::kLink,
             {absl::StrCat(ends, "it takes no results, so none of its calls is started")}});
      }
    }
  }
}

void find_queues(const JobView& job, std::uint64_t patience_us, Findings& found) {
  for (const WorkerView& view : job) {
    std::size_t queued = 0;
    std::size_t running = 0;
    std::uint64_t oldest_us = 0;
    for (const proto::ServedCall& call : view.state.served_calls()) {
      running += call.state() == proto::ServedCall::RUNS ? 1 : 0;
      if (call.state() != proto::ServedCall::QUEUED || call.age_us() < patience_us) continue;
      ++queued;
      oldest_us = std::max(oldest_us, static_cast<std::uint64_t>(call.age_us()));
    }
    if (queued == 0) continue;
    const auto most = view.state.counters().find("rpc.max_threads");
    found.push_back({Finding::Kind::kQueue,
                     {absl::StrCat("worker '", cut_text(view.name), "': ", queued,
                                   " calls wait for a thread, one for ", time_text(oldest_us)),
                      absl::StrCat("calls that run: ", running, "; threads for them: ",
                                   most == view.state.counters().end() ? 0 : most->second,
                                   " (WorkerOptions::num_threads)")}});
  }
}

}  // namespace

std::vector<Finding> find_stuck(const JobView& before, const JobView& now,
                                std::chrono::microseconds patience) {
  const auto patience_us = static_cast<std::uint64_t>(patience.count());
  const CallGraph calls(now, patience);
  Findings found = calls.cycles();
  find_silent(now, found);
  find_registry(now, found);
  find_gathers(now, patience_us, found);
  find_collectives(before, now, found);
  find_queues(now, patience_us, found);
  find_links(now, found);
  for (Finding& root : calls.roots()) found.push_back(std::move(root));
  return found;
}

absl::StatusOr<std::vector<Finding>> look_for_stuck(const JobAccess& access,
                                                    std::chrono::microseconds patience) {
  const absl::StatusOr<JobView> before = ask_job(access, {"groups"});
  if (!before.ok()) return before.status();
  std::this_thread::sleep_for(kBetweenLooks);
  const absl::StatusOr<JobView> now =
      ask_job(access, {"made_calls", "served_calls", "links", "gathers", "groups"});
  if (!now.ok()) return now.status();
  return find_stuck(*before, *now, patience);
}

}  // namespace sinew::internal
