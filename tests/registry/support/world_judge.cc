#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sinew/tests/registry/support/world.h"

namespace sinew::internal::registry {
namespace {

std::vector<WorkerInfo> workers_of(const RegistryClient& client) {
  std::vector<WorkerInfo> workers;
  for (const auto& [incarnation, member] : client.members()) {
    if (!client.is_awaited(incarnation)) workers.push_back(member.worker);
  }
  return workers;
}

std::vector<WorkerInfo> workers_of(const List& list) {
  std::vector<WorkerInfo> workers;
  for (const Record& member : list.members) workers.push_back(member.worker);
  return workers;
}

bool is_over(const RegistryClient& client) {
  return client.state() == MembershipState::kEvicted || client.state() == MembershipState::kLeft;
}

}  // namespace

std::uint64_t fingerprint_of(const std::vector<WorkerInfo>& workers) {
  std::uint64_t sum = 0;
  for (const WorkerInfo& worker : workers) sum += absl::HashOf(worker);
  return sum;
}

void World::violate(std::string text) {
  if (violation_.empty()) violation_ = absl::StrCat(text, " (at ", now_ / milliseconds(1), " ms)");
}

void World::judge_send(const Send& send) {
  if (const Update* update = std::get_if<Update>(&send.answer)) judge_changes(*update);
  const Refused* refused = std::get_if<Refused>(&send.answer);
  const bool is_alone = !setup_.has_twin && setup_.liars == 0 && !setup_.has_guest;
  if (refused != nullptr && absl::IsAlreadyExists(refused->why) && is_alone) {
    violate(absl::StrCat("J5: a join is refused for somebody who is dead: ",
                         std::string(refused->why.message())));
  }
  const Out* out = std::get_if<Out>(&send.answer);
  // Who is the last one hears it by this alone.
  if (out != nullptr && told_out_.insert(send.to[0]).second && out->why == Gone::kSilent &&
      ran() < heard_[send.to[0]] + kLease - milliseconds(800)) {
    violate("J3: somebody who was heard within a lease is out");
  }
  if (out != nullptr && out->why == Gone::kNotReturned &&
      ran() < registrar_began_ + kLease - milliseconds(800)) {
    violate("J3: somebody came back in time, and is out");
  }
}

/// It has said so of somebody, or most have said so of it.
bool World::has_lost_or_is_lost(Incarnation who) const {
  const auto has_lost = [&](const auto& report) { return report.first == who; };
  const auto says_so = [&](const auto& report) { return report.second == who; };
  return std::any_of(reports_.begin(), reports_.end(), has_lost) ||
         2 * std::count_if(reports_.begin(), reports_.end(), says_so) > setup_.workers / 2;
}

void World::judge_changes(const Update& update) {
  for (std::size_t i = 0; i < update.changes.size(); ++i) {
    const Change& change = update.changes[i];
    const Incarnation who = change.member.worker.incarnation;
    if (update.since + i + 1 <= judged_ || !change.gone.has_value()) continue;
    const int n = node_of(who);
    const bool is_alive = n >= 0 && at(n).is_alive && is_honest(n);
    bool is_right = true;
    switch (*change.gone) {
      case Gone::kLeft:
        is_right = said_leave_.count(who) > 0;
        break;
      case Gone::kProcessEnded:
        is_right = ended_.count(who) > 0;
        break;
      case Gone::kSilent:
        is_right = ran() >= heard_[who] + kLease - milliseconds(800);
        break;
      case Gone::kLostEachOther:
        is_right = !is_alive || has_lost_or_is_lost(who);
        break;
      case Gone::kReplaced:
        is_right = !is_alive || setup_.has_twin;
        break;
      case Gone::kOtherJob:
        is_right = !is_alive || (setup_.liars == 0 && !setup_.has_guest);
        break;
      default:
        is_right = false;
    }
    say(absl::StrCat("off the list: ", change.member.worker.name, ": ", to_text(*change.gone)));
    gone_at_[change.member.worker.name] = now_;
    if (!is_right)
      violate(
          absl::StrCat("J3: ", change.member.worker.name, " was put off: ", to_text(*change.gone)));
  }
  judged_ = std::max(judged_, update.version.count);
}

void World::judge_table() {
  if (!table_.has_value()) return;
  const List list = table_->roster().list();
  const auto [known, is_new] =
      lists_.emplace(std::make_pair(registrar_.value, list.version.count), 0);
  if (!is_new && known->second == fingerprint_of(workers_of(list))) return;
  if (!is_new && known->second != 0) violate("J1: a list changed, and its number did not");
  known->second = fingerprint_of(workers_of(list));
  std::set<std::string> names;
  std::set<int> ranks;
  for (const Record& member : list.members) {
    const WorkerInfo& worker = member.worker;
    if (!names.insert(worker.name).second || !ranks.insert(worker.rank).second || worker.rank < 0 ||
        (setup_.world_size > 0 && worker.rank >= setup_.world_size)) {
      violate(absl::StrCat("J4: worker '", worker.name, "' has rank ", worker.rank));
    }
    if (lives_.count(worker.incarnation) == 0 && worker.incarnation != guest()) {
      violate(absl::StrCat("J10: worker '", worker.name, "' is in, and there is none"));
    }
  }
  // A world that begins does so with all: those who return began before.
  const bool has_begun = setup_.world_size == 0 || was_complete_ || list.members.empty();
  if (!has_begun && list.members.size() != static_cast<std::size_t>(setup_.world_size)) {
    violate(
        absl::StrCat("J4: a world of ", setup_.world_size, " begins with ", list.members.size()));
  }
  was_complete_ = was_complete_ || !list.members.empty();
}

void World::judge_client(int n) {
  Node& node = at(n);
  if (!node.client.has_value() || !is_honest(n)) return;
  const Version& version = node.client->version();
  if (version.count == node.seen.count && version.registrar == node.seen.registrar) return;
  if (version.epoch < node.seen.epoch ||
      (version.registrar == node.seen.registrar && version.count < node.seen.count)) {
    violate(absl::StrCat("J2: ", name_of(n), " goes back from ", node.seen.epoch, ".",
                         node.seen.count, " to ", version.epoch, ".", version.count));
  }
  node.seen = version;
  const std::uint64_t list = fingerprint_of(workers_of(*node.client));
  const auto [known, is_new] =
      lists_.emplace(std::make_pair(version.registrar.value, version.count), list);
  if (!is_new && known->second != list) {
    violate(
        absl::StrCat("J1: ", name_of(n), " has another list ", version.epoch, ".", version.count));
  }
}

void World::judge_gather(int n, const Ended& end) {
  Node& node = at(n);
  const std::string text(end.status.message());
  if (is_honest(n) && !end.status.ok() && !absl::StrContains(text, "'") &&
      !absl::StrContains(text, "registrar") && !absl::StrContains(text, "this worker")) {
    violate(absl::StrCat("J5: ", name_of(n), " is told nobody's name: ", text));
  }
  const auto found = node.gathers.find(end.id);
  if (found == node.gathers.end()) return;
  const auto [key, since] = found->second;
  node.gathers.erase(found);
  // A liar's own requests are lies, too.
  if (!is_honest(n)) return;
  if (node.runs_from <= since && now_ > since + kGatherFor + 4 * kTick) {
    violate(absl::StrCat("J5: the gather ", key, " of ", name_of(n), " ended late"));
  }
  for (const auto& [name, gone] : gone_at_) {
    const bool is_named = absl::StrContains(text, "had not come after") &&
                          absl::StrContains(text, absl::StrCat("'", name, "'"));
    if (is_named && gone > since && now_ > gone + 2 * kBeat) {
      violate(absl::StrCat("J5: the gather ", key, " of ", name_of(n), " waited for ", name,
                           ", who is gone"));
    }
  }
  const auto result = results_.find(key);
  if (end.status.ok()) {
    ++counts_.gathers_done;
    if (end.values.size() != std::stoul(key)) violate("J6: a gather completed without all");
    if (result == results_.end()) {
      results_[key] = {now_, end.values};
    } else if (result->second.values != end.values) {
      violate("J6: two results of one gather");
    }
    return;
  }
  // Whoever gave up because of the registrar, or is out, asks no more.
  const bool has_asked = !node.was_away && node.client.has_value() && !is_over(*node.client) &&
                         node.runs_from <= since;
  const bool was_told = result != results_.end() && (!absl::IsDeadlineExceeded(end.status) ||
                                                     now_ > result->second.when + 3 * kBeat);
  if (has_asked && was_told && !node.client->is_away() && now_ > last_fault_ + kBeat) {
    violate(
        absl::StrCat("J6: ", name_of(n), " did not get the result of a complete gather: ", text));
  }
}

bool World::lists_agree() const {
  if (!table_.has_value()) return false;
  const std::uint64_t list = fingerprint_of(workers_of(table_->roster().list()));
  for (int n = 0; n < setup_.workers; ++n) {
    const Node& node = nodes_[index(n)];
    if (!node.is_alive || !is_honest(n) || !node.client.has_value()) continue;
    const bool is_in = table_->roster().find(node.incarnation) != nullptr;
    const MembershipState state = node.client->state();
    const bool thinks_so =
        state == MembershipState::kMember || state == MembershipState::kSuspected;
    if (is_in != thinks_so || (is_in && state != MembershipState::kMember)) return false;
    if (is_in && fingerprint_of(workers_of(*node.client)) != list) return false;
  }
  return true;
}

// A moment in which something changes is none to judge.
void World::judge_lists() {
  for (int i = 0; i < 10 && !lists_agree(); ++i) run_until(now_ + milliseconds(50));
  if (!lists_agree()) violate("J8: lists differ a lease and two beats after the last fault");
}

void World::judge_end() {
  judge_lists();
  for (int n = 0; n < setup_.workers && violation_.empty(); ++n) judge_end_of(n);
  if (!violation_.empty() || setup_.liars > 0 || setup_.has_guest) return;
  if (table_->roster().waiting() > (setup_.has_twin ? 1U : 0U))
    violate("J5: somebody waits to join");
}

void World::judge_end_of(int n) {
  const Node& node = nodes_[index(n)];
  if (!node.is_alive || !is_honest(n)) return;
  if (node.leaves) violate(absl::StrCat("J5: ", name_of(n), " does not get away"));
  for (int other = 0; other < setup_.workers; ++other) {
    const Incarnation incarnation = nodes_[index(other)].incarnation;
    if (is_honest(other) && node.client->has_lost(incarnation) &&
        table_->roster().find(incarnation) != nullptr &&
        table_->roster().find(node.incarnation) != nullptr) {
      violate(absl::StrCat("J8: ", name_of(n), " has lost ", name_of(other), ", and both are in"));
    }
  }
  const bool is_pair = setup_.has_twin && n >= setup_.workers - 2;
  if (node.client->state() != MembershipState::kMember) {
    if (!is_pair) violate(absl::StrCat("J8: ", name_of(n), " is not in"));
    return;
  }
  for (const auto& [id, each] : node.gathers) {
    if (now_ > each.second + kGatherFor + 4 * kTick)
      violate(absl::StrCat("J5: a gather of ", name_of(n), " does not end"));
  }
}

}  // namespace sinew::internal::registry
