#include "sinew/tests/membership/support/sim_job.h"

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal::sim {
namespace {

constexpr nanoseconds kJoinTime = seconds(30);
constexpr nanoseconds kLeaveTime = seconds(10);
constexpr nanoseconds kMargin = seconds(3);
constexpr nanoseconds kJustJoined = seconds(1);
// A lease, and until a part that decides nothing says so.
constexpr nanoseconds kUnawareFor = seconds(8);

std::string name_of(int index) { return std::string(1, static_cast<char>('a' + index)); }

std::string view_text(const Slot& slot) {
  std::vector<std::string> names;
  for (const Member& each : slot.directory->members()) {
    names.push_back(absl::StrCat(each.worker.name, "#", each.worker.incarnation.value / 100, "@",
                                 each.worker.rank));
  }
  return absl::StrJoin(names, " ");
}

/// Whatever its rank.
bool is_listed(const Directory& directory, const WorkerInfo& worker) {
  const absl::StatusOr<Member> found = directory.find(worker.name);
  return found.ok() && found->worker.incarnation == worker.incarnation;
}
bool is_sure(const Slot& slot) {
  return slot.process != nullptr && slot.process->runs() &&
         slot.membership->state() == MembershipState::kMember;
}
bool lists(const Slot& slot, const Slot& other) {
  return is_listed(*slot.directory, other.process->self());
}

}  // namespace

Job::Job(const Plan& plan, std::size_t workers, Chance& chance, bool narrate)
    : plan_(plan), chance_(chance), narrate_(narrate), network_(clock_, chance_) {
  slots_.resize(workers);
  for (std::size_t i = 0; i < workers; ++i) slots_[i].index = static_cast<int>(i);
  network_.tap = [this](const WorkerInfo& from, const WorkerInfo& to, const std::string& method,
                        const std::string& body) { look_at(from, to, method, body); };
}

Job::~Job() {
  for (Slot& slot : slots_) end(slot, "the end");
}

void Job::violate(const std::string& text) {
  if (ok()) report_.violation = absl::StrCat(text, " at ", now_text());
  say(absl::StrCat("VIOLATION ", text));
}
std::string Job::now_text() const {
  const auto since = clock_.now() - TimePoint(std::chrono::hours(1));
  return absl::StrCat(std::chrono::duration_cast<milliseconds>(since).count(), " ms");
}
void Job::say(const std::string& text) const {
  if (narrate_) std::cerr << now_text() << ": " << text << "\n";
}
std::string Job::text_of(const Slot& slot) const {
  return slot.process == nullptr
             ? name_of(slot.index)
             : absl::StrCat(name_of(slot.index), "#", slot.process->self().incarnation.value / 100);
}

/// Over TCP.
bool Job::is_founder(const Slot& slot) const {
  return slot.index == 0 || (slot.index == 1 && plan_.meeting == Meeting::kSeeds);
}

Rendezvous Job::rendezvous(const Slot& slot) const {
  Rendezvous meeting;
  const bool fixed = plan_.size == Size::kFixed;
  if (plan_.meeting != Meeting::kFile) {
    meeting.kind = Rendezvous::Kind::kTcp;
    meeting.seeds = {address_on(0, "meet")};
    if (plan_.meeting == Meeting::kSeeds) meeting.seeds.push_back(address_on(1, "meet"));
    meeting.founds = is_founder(slot);
  } else {
    meeting.kind = Rendezvous::Kind::kFile;
    meeting.path = "/meet";
    meeting.founds = !fixed || slot.index == 0;
  }
  meeting.world_size = fixed ? static_cast<int>(slots_.size()) : 0;
  // Over a file rank 0 is that of whoever founds the job.
  const bool asks = fixed || (slot.index == 0 && plan_.meeting == Meeting::kTcp);
  meeting.rank = asks ? slot.index : -1;
  return meeting;
}

void Job::start(Slot& slot) {
  const std::uint64_t incarnation = ++last_ * 100 + static_cast<std::uint64_t>(slot.index);
  const WorkerInfo self{name_of(slot.index), -1, {incarnation}};
  const bool serves = plan_.meeting != Meeting::kFile && is_founder(slot);
  slot.process = std::make_shared<Process>(
      clock_, slot.index, self,
      address_on(slot.index, serves ? "meet" : std::to_string(incarnation)));
  slot.plane = network_.add(slot.process);
  slot.scheduler = std::make_shared<Scheduler>(slot.process, *slot.process, clock_);
  slot.directory = std::make_unique<Directory>();
  slot.was_evicted = false;
  slot.left.reset();
  MembershipOptions options;
  options.self = {self, slot.process->address(), 0};
  options.job = "job";
  options.rendezvous = rendezvous(slot);
  options.timeout = kJoinTime;
  if (serves) options.served_seed = slot.process->address();
  options.answer_time = kLease / 5;
  if (plan_.meeting == Meeting::kFile) {
    options.file = std::make_shared<SlowFile>(file_, clock_, chance_, slot.process);
  }
  connect(slot, options);
  slot.membership = std::make_unique<PeerMembership>(*slot.plane, *slot.directory,
                                                     std::move(options), *slot.scheduler);
  slot.plane->membership = slot.membership.get();
  slot.started = clock_.now();
  slot.joined_at = TimePoint::max() - kJustJoined;
  slot.joined = slot.membership->join_async();
  ++report_.starts;
  say(absl::StrCat("start ", text_of(slot)));
}

void Job::connect(Slot& slot, MembershipOptions& options) {
  Plane* plane = slot.plane.get();
  Process* process = slot.process.get();
  const Directory* directory = slot.directory.get();
  plane->lists = [directory](const WorkerInfo& other) { return is_listed(*directory, other); };
  options.ask_standing = [plane](const Member& of, const Standing& own) {
    return plane->ask_standing(of, own);
  };
  options.ask_address = [plane](const Contact& where, const Standing& own) {
    return plane->ask_address(where, own);
  };
  options.is_linked = [plane](const WorkerInfo& other) { return plane->is_linked(other); };
  options.on_unreachable = [this, process](const WorkerInfo& other) {
    network_.end(*process, other);
  };
  options.probe_lost = [plane](const Member& other) { return plane->probe_lost(other); };
  options.on_change = [this, &slot, process](const std::vector<Member>& joined,
                                             const std::vector<Departed>& gone) {
    on_change(slot, *process, joined, gone);
  };
  options.on_removed = [this, &slot, process](const absl::Status& reason) {
    on_removed(slot, *process, std::string(reason.message()));
  };
  options.on_warning = [this, &slot](const std::string& warning) { on_warning(slot, warning); };
}

void Job::on_change(Slot& slot, const Process& process, const std::vector<Member>& joined,
                    const std::vector<Departed>& gone) {
  for (const Departed& each : gone) {
    each.how == Departure::kLeft ? network_.retire(process, each.worker)
                                 : network_.end(process, each.worker);
  }
  slot.plane->serve_held();
  if (!narrate_) return;
  say(absl::StrCat(text_of(slot), " sees ", view_text(slot), " (", joined.size(), " new, ",
                   gone.size(), " gone)"));
}

void Job::on_removed(Slot& slot, const Process& process, const std::string& reason) {
  say(absl::StrCat(text_of(slot), " is out: ", reason));
  slot.was_evicted = true;
  ++report_.evictions;
  // A founder cannot know of a job whose members just then notice the death of one coordinator
  // after the other. Nor can it, where somebody who has joined is not in the file yet.
  if (reason.find("where workers look") != std::string::npos) has_met_another_job_ = true;
  // Nor does one coordinator know that others have given up a worker while nobody could tell it
  // that it was in.
  const bool is_new = clock_.now() < slot.joined_at + kJustJoined;
  if (plan_.trouble == Trouble::kDeaths && !has_met_another_job_ && !is_new) {
    violate(absl::StrCat(text_of(slot), " was evicted, though nobody was stopped or cut off"));
  }
  network_.end_all(process);
}

void Job::on_warning(const Slot& slot, const std::string& warning) {
  if (warning.find("frozen") != std::string::npos) ++report_.freezes;
  if (warning.find("two jobs") != std::string::npos) has_met_another_job_ = true;
  say(absl::StrCat(text_of(slot), " warns: ", warning));
}

void Job::end(Slot& slot, const char* why) {
  if (slot.process == nullptr) return;
  say(absl::StrCat(why, ": ", text_of(slot)));
  slot.process->kill();
  slot.plane->membership = nullptr;
  slot.membership.reset();
  network_.remove(*slot.process);
  slot.process.reset();
  slot.joined.reset();
  slot.left.reset();
  slot.resumes = TimePoint::max();
  if (pause) slot.starts = clock_.now() + pause();
}

void Job::resume(Slot& slot) {
  if (slot.process == nullptr || slot.process->runs()) return;
  say(absl::StrCat("resume ", text_of(slot)));
  slot.resumes = TimePoint::max();
  slot.process->go_on();
}

void Job::leave(Slot& slot) {
  if (!slot.runs() || !slot.membership->ready() || slot.left.has_value()) return;
  ++report_.leaves;
  say(absl::StrCat("leave ", text_of(slot)));
  slot.left = slot.membership->leave_async(kLeaveTime);
  slot.left_at = clock_.now();
}

void Job::stop(Slot& slot, nanoseconds time) {
  if (!slot.runs()) return;
  ++report_.stops;
  say(absl::StrCat("stop ", text_of(slot)));
  slot.process->stop();
  slot.resumes = clock_.now() + time;
}

void Job::heal() {
  say("heal");
  network_.heal();
}

void Job::make_peace() {
  say("peace");
  network_.heal();
  for (Slot& slot : slots_) resume(slot);
}

void Job::step() {
  clock_.advance(milliseconds(50));
  for (Slot& slot : slots_) {
    if (clock_.now() >= slot.resumes) resume(slot);
    if (slot.process == nullptr && clock_.now() >= slot.starts) {
      slot.starts = TimePoint::max();
      start(slot);
    }
    supervise(slot);
  }
  // Who is dead has no vote: when all those are dead who have decided while a part slept, that
  // part may decide, too, until the two meet.
  const bool nobody_died = plan_.trouble == Trouble::kNoDeaths && !starts_evicted_;
  if (plan_.size == Size::kFixed && nobody_died) expect_one_part();
}

void Job::supervise(Slot& slot) {
  if (slot.process == nullptr || !slot.process->runs()) return;
  if (slot.left.has_value()) return supervise_leaving(slot);
  if (slot.was_evicted) {
    if (plan_.trouble != Trouble::kNoDeaths || starts_evicted_) end(slot, "evicted");
    return;
  }
  if (!slot.joined->done()) {
    // A stopped process has lost time.
    if (clock_.now() - slot.started > kJoinTime + kLongStop + kMargin) {
      violate(absl::StrCat(text_of(slot), " neither joins nor fails"));
    }
    return;
  }
  if (slot.joined->error() != nullptr) {
    say(absl::StrCat(text_of(slot), " did not join: ", to_status(slot.joined->error()).message()));
    return end(slot, "failed");
  }
  slot.joined_at = std::min(slot.joined_at, clock_.now());
  keep_leases(slot);
}

void Job::supervise_leaving(Slot& slot) {
  if (slot.left->done()) {
    const bool may_freeze = plan_.size == Size::kFixed;
    if (plan_.trouble == Trouble::kDeaths && !may_freeze && slot.left->error() != nullptr) {
      violate(absl::StrCat(text_of(slot), ": ", to_status(slot.left->error()).message()));
    }
    return end(slot, "left");
  }
  if (clock_.now() - slot.left_at > kLeaveTime + kLongStop + kMargin) {
    violate(absl::StrCat(text_of(slot), " does not end to leave"));
  }
}

// As workers do: the coordinator with all, all with the coordinator.
void Job::keep_leases(Slot& slot) {
  const WorkerInfo coordinator = slot.membership->coordinator();
  const WorkerInfo self = slot.membership->self();
  for (const Member& member : slot.directory->members()) {
    if (coordinator.incarnation == self.incarnation ||
        member.worker.incarnation == coordinator.incarnation) {
      network_.keep_lease(*slot.process, member.worker);
    } else if (chance_.one_in(200)) {
      // Users call each other.
      network_.keep_lease(*slot.process, member.worker);
    }
  }
}

void Job::look_at(const WorkerInfo& from, const WorkerInfo& to, const std::string& method,
                  const std::string& body) {
  if (method == kProposeMethod || method == kVoteMethod)
    say(absl::StrCat(method, " from ", from.name, " to ", to.name));
  if (method != "sinew.member.update") return;
  proto::MemberList list;
  if (!list.ParseFromString(body)) return;
  say(absl::StrCat("update ", list.version() >> 32, ".", list.version() & 0xffffffff, " from ",
                   from.name, " to ", to.name));
}

/// In a fixed world no two parts go on each on its own: of two workers that do not list each
/// other, and run, one knows soon that it is not sure.
void Job::expect_one_part() {
  for (const Slot& one : slots_) {
    for (const Slot& other : slots_) {
      if (&one >= &other) continue;
      const bool apart = is_sure(one) && is_sure(other) && !lists(one, other) && !lists(other, one);
      const std::pair<int, int> pair(one.index, other.index);
      if (!apart) {
        apart_since_.erase(pair);
      } else if (clock_.now() - apart_since_.try_emplace(pair, clock_.now()).first->second >
                 kUnawareFor) {
        return violate(
            absl::StrCat(text_of(one), " and ", text_of(other), " go on each on its own"));
      }
    }
  }
}
void Job::judge() {
  std::set<std::string> views;
  std::set<std::uint64_t> alive;
  const Slot* in = nullptr;
  for (const Slot& slot : slots_) {
    if (slot.process == nullptr) return violate(absl::StrCat(text_of(slot), " does not run"));
    if (slot.was_evicted) continue;
    alive.insert(slot.process->self().incarnation.value);
    if (slot.membership->state() != MembershipState::kMember) {
      violate(absl::StrCat(text_of(slot), " is no member in the end"));
    }
    views.insert(view_text(slot));
    in = &slot;
  }
  // Two sides may each take the other for the heavier one, and go; a supervisor starts them
  // again.
  if (in == nullptr) {
    report_.all_out = true;
    return;
  }
  if (views.size() != 1) {
    return violate(absl::StrCat("lists differ: ", absl::StrJoin(views, " | ")));
  }
  if (const std::string pair = network_.lost_pair(alive); !pair.empty()) {
    violate(absl::StrCat("two members never talk again: ", pair));
  }
  for (const Member& each : in->directory->members()) {
    if (alive.count(each.worker.incarnation.value) == 0) {
      violate(absl::StrCat("the lists have '", each.worker.name, "', which is gone"));
    }
  }
}

}  // namespace sinew::internal::sim
