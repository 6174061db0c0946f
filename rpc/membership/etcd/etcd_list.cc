#include "sinew/rpc/membership/etcd/etcd_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sinew::internal::etcd {

using registry::Record;
using Kind = Layout::Part::Kind;

namespace {

// An incarnation that was told to be gone long ago does not come back.
constexpr std::size_t kMaxTold = 65536;
constexpr std::chrono::seconds kAgain{2};

}  // namespace

const Record* EtcdList::find(const std::string& name) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const auto& each) {
    return each.second.worker.name == name;
  });
  return found == members_.end() ? nullptr : &found->second;
}

const Record* EtcdList::self() const {
  const auto found = members_.find(options_.self);
  return found == members_.end() ? nullptr : &found->second;
}

bool EtcdList::has_all_ranks(std::int32_t world_size) const {
  // etcd's keys of ranks are each one's.
  return static_cast<std::int32_t>(members_.size()) >= world_size;
}

ListEffects EtcdList::reset(const std::vector<KeyValue>& kvs, Time now) {
  ListEffects out;
  gone_.clear();
  world_names_.reset();
  std::set<std::pair<Incarnation, Incarnation>> reports;
  std::set<Incarnation> present;
  for (const KeyValue& kv : kvs) note_gone(kv);
  for (const KeyValue& kv : kvs) {
    const Layout::Part part = layout_.parse(kv.key());
    if (part.kind == Kind::kMember) present.insert(part.id);
    if (part.kind == Kind::kReport) reports.emplace(part.id, part.about);
    put(kv, now, out);
  }
  losses_.keep_only(reports);
  std::vector<Incarnation> absent;
  for (const auto& [id, record] : members_) {
    if (present.count(id) == 0) absent.push_back(id);
  }
  if (present.count(options_.self) == 0 && self() == nullptr) absent.push_back(options_.self);
  for (const Incarnation id : absent) erase_member(id, now, out);
  return out;
}

ListEffects EtcdList::apply(const std::vector<Event>& events, Time now) {
  ListEffects out;
  // The reason why a member is gone comes with the end of its key.
  for (const Event& event : events) {
    if (event.type() == Event::PUT) note_gone(event.kv());
  }
  for (const Event& event : events) {
    if (event.type() == Event::PUT) {
      put(event.kv(), now, out);
    } else {
      erase(event.kv(), now, out);
    }
  }
  return out;
}

void EtcdList::note_gone(const KeyValue& kv) {
  const Layout::Part part = layout_.parse(kv.key());
  if (part.kind != Kind::kGone) return;
  proto::EtcdGone gone;
  if (!gone.ParseFromString(kv.value())) gone.set_reason("another worker has reported it");
  const bool is_known = gone.why() <= static_cast<std::uint32_t>(kLastOfList);
  gone_[part.id] = {is_known ? static_cast<Gone>(gone.why()) : Gone::kUnknown, gone.reason()};
}

void EtcdList::put(const KeyValue& kv, Time now, ListEffects& out) {
  const Layout::Part part = layout_.parse(kv.key());
  switch (part.kind) {
    case Kind::kJob:
      job_ = kv.value();
      return;
    case Kind::kComplete:
      world_names_ = std::vector<std::string>();
      if (!kv.value().empty()) {
        *world_names_ = absl::StrSplit(kv.value(), '\n');
      }
      return;
    case Kind::kMember:
      return put_member(part, kv.value(), out);
    case Kind::kGone:
      return put_gone(part.id, out);
    case Kind::kReport:
      losses_.add(part.id, part.about, now);
      return;
    case Kind::kGather:
      out.push_back(GatherNews{part.gather, kv.value()});
      return;
    case Kind::kOther:
      return;
  }
}

void EtcdList::erase(const KeyValue& kv, Time now, ListEffects& out) {
  const Layout::Part part = layout_.parse(kv.key());
  switch (part.kind) {
    case Kind::kComplete:
      world_names_.reset();
      return;
    case Kind::kMember:
      // The notice may arrive after this worker has returned.
      if (part.id == options_.self && kv.mod_revision() < returned_) return;
      return erase_member(part.id, now, out);
    case Kind::kGone:
      gone_.erase(part.id);
      return;
    case Kind::kReport:
      losses_.take_back(part.id, part.about);
      return;
    case Kind::kJob:
    case Kind::kGather:
    case Kind::kOther:
      return;
  }
}

void EtcdList::put_member(const Layout::Part& part, const std::string& value, ListEffects& out) {
  const std::optional<Record> record = decode_member(value);
  // Not ours, or one that lies about itself.
  if (!record.has_value() || record->worker.incarnation != part.id) return;
  if (const auto told = told_.find(part.id); told != told_.end()) {
    out.push_back(SayGone{told->second, Gone::kSilent, "it was taken for lost before", {}});
    return;
  }
  if (gone_.count(part.id) > 0) return;
  missing_.erase(part.id);
  if (members_.emplace(part.id, *record).second && part.id != options_.self) {
    out.push_back(MemberNews{*record, std::nullopt, {}});
  }
}

void EtcdList::erase_member(Incarnation id, Time now, ListEffects& out) {
  if (id == options_.self) {
    const auto gone = gone_.find(id);
    if (gone != gone_.end()) return put_gone(id, out);
    const bool may_return = is_returning(now);
    out.push_back(SelfGone{!may_return, Gone::kSilent,
                           "etcd has ended this worker's lease, or its key was deleted"});
    return;
  }
  if (members_.count(id) == 0) return;
  if (gone_.count(id) > 0) return put_gone(id, out);
  if (is_returning(now)) {
    missing_.insert(id);
  } else {
    lose(id, out);
  }
}

void EtcdList::put_gone(Incarnation id, ListEffects& out) {
  const auto& [why, reason] = gone_.at(id);
  if (id == options_.self) {
    out.push_back(SelfGone{true, why, reason});
  } else if (members_.count(id) > 0) {
    drop(id, why, std::string(reason), out);
  }
}

void EtcdList::drop(Incarnation id, Gone why, const std::string& reason, ListEffects& out) {
  const Record record = members_.at(id);
  members_.erase(id);
  missing_.erase(id);
  judged_.erase(id);
  if (told_.size() >= kMaxTold) told_.erase(told_.begin());
  told_[id] = record;
  losses_.drop(id);
  out.push_back(MemberNews{record, why, reason});
}

void EtcdList::lose(Incarnation id, ListEffects& out) {
  const Record record = members_.at(id);
  const std::string reason = "its lease at etcd has ended";
  drop(id, Gone::kSilent, reason, out);
  out.push_back(SayGone{record, Gone::kSilent, reason, {}});
}

void EtcdList::renewed(Time sent, Time now) {
  if (is_away(now)) returning_until_ = now + options_.lease;
  renewed_ = std::max(renewed_, sent);
}

ListEffects EtcdList::tick(Time now) {
  ListEffects out;
  if (!is_returning(now)) {
    for (const Incarnation id : std::set<Incarnation>(missing_)) lose(id, out);
  }
  judge(now, out);
  return out;
}

// Each worker judges between itself and others.
void EtcdList::judge(Time now, ListEffects& out) {
  const registry::LossJudge::Members all{
      members_.size(), [this](Incarnation id) { return members_.at(id).worker.rank; }};
  if (self() == nullptr) return;
  for (const auto& [other, record] : members_) {
    const auto verdict = losses_.judge(options_.self, other, now, all);
    if (!verdict.has_value()) continue;
    const auto before = judged_.find(verdict->goes);
    if (before != judged_.end() && now < before->second + kAgain) continue;
    judged_[verdict->goes] = now;
    out.push_back(SayGone{members_.at(verdict->goes), Gone::kLostEachOther,
                          absl::StrCat("it and worker '", members_.at(verdict->stays).worker.name,
                                       verdict->both_say_so ? "' have lost each other"
                                                            : "' disagree on who is there"),
                          verdict->stays});
  }
}

}  // namespace sinew::internal::etcd
