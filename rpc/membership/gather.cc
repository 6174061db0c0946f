#include "sinew/rpc/membership/gather.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/threads/strand.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/coordinator.h"
#include "sinew/rpc/membership/gather_histories.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/rpc/membership/rendezvous.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;

// Gathers that one worker may have begun with us and that we have not joined yet.
constexpr std::size_t kMostUnjoined = 1024;
constexpr std::size_t kMostNames = 65536;
constexpr std::size_t kMostShown = 16;

using Values = std::vector<std::string>;
using Outcome = GatherHistories::Outcome;
using Answer = Promise<std::string>;

std::string shown(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kMostShown);
  std::string text = absl::StrCat(
      "'", absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), "', '"),
      "'");
  if (count < names.size()) absl::StrAppend(&text, " and ", names.size() - count, " more");
  return text;
}

// FNV-1a. It must be the same in every process, which absl::Hash is not.
std::uint32_t fingerprint(const std::vector<WorkerInfo>& members) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const WorkerInfo& member : members) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ ((member.incarnation.value >> shift) & 0xff)) * 0x100000001b3;
    }
  }
  const auto folded = static_cast<std::uint32_t>(hash ^ (hash >> 32));
  return folded == 0 ? 1 : folded;
}

LossMode mode_of(const GatherKey& key) {
  return key.epoch() == 0 ? LossMode::kTolerate : LossMode::kFail;
}

struct Waiter {
  WorkerInfo worker;
  Answer answer;
};

// One gather. It exists from the first value on, ours or another's.
struct Slot {
  std::vector<std::string> names;
  // Set once this worker has joined in.
  std::optional<Promise<Values>> own;
  nanoseconds timeout{};
  Scheduler::TimePoint deadline = Scheduler::TimePoint::max();
  Scheduler::TimerId timer = 0;
  // kFail: who the names were when this worker joined in.
  std::vector<WorkerInfo> members;
  // What has come, ours included.
  std::map<std::string, std::string> values;
  std::vector<Waiter> waiters;
  // Lost since the gather began here, whoever has the name now.
  std::set<std::string> gone;
  // Whom we sent our value to.
  std::string followed;
  // Whom we asked for the outcome of a leader that was lost.
  std::set<std::string> asked;
};

void reply_with(const Answer& answer, const Outcome& outcome) {
  if (!outcome.ok()) {
    answer.try_set_error(make_error(outcome.status()));
    return;
  }
  proto::GatherResponse response;
  for (const std::string& value : *outcome) response.add_values(value);
  answer.try_set_value(response.SerializeAsString());
}

absl::StatusOr<proto::GatherRequest> parse_request(const std::string& body,
                                                   const WorkerInfo& from) {
  absl::StatusOr<proto::GatherRequest> request =
      parse_message<proto::GatherRequest>("a GatherRequest", body);
  if (request.ok() && request->name() != from.name) {
    return absl::PermissionDeniedError(
        absl::StrCat("worker '", printable(from.name, 128), "' takes part in a gather as '",
                     printable(request->name(), 128), "'; a worker speaks for itself only"));
  }
  return request;
}

}  // namespace

class GatherCore : public std::enable_shared_from_this<GatherCore> {
 public:
  GatherCore(ControlPlane& plane, Directory& directory, std::string self, Scheduler& scheduler)
      : plane_(plane),
        directory_(directory),
        self_(std::move(self)),
        scheduler_(scheduler),
        strand_(std::make_shared<Strand>(scheduler.runner())) {}

  void add_methods();
  Future<Values> start(std::vector<std::string> names, std::string value, nanoseconds timeout,
                       LossMode mode);
  void on_worker_lost(const WorkerInfo& worker);
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

 private:
  using Slots = std::map<GatherKey, Slot>;
  using Handler = void (GatherCore::*)(const WorkerInfo& from, const std::string& body,
                                       const Answer& answer);

  template <class F>
  void post(F step);
  void add_method(std::string name, Handler handler);
  void call(const std::string& to, std::string_view method, const GatherKey& key, const Slot& slot,
            void (GatherCore::*on_reply)(const GatherKey&, const std::string&, const Outcome&));

  void join_in(std::vector<std::string> names, std::string value, nanoseconds timeout,
               LossMode mode, const Promise<Values>& own);
  absl::StatusOr<std::vector<WorkerInfo>> find_members(const std::vector<std::string>& names) const;
  void handle_value(const WorkerInfo& from, const std::string& body, const Answer& answer);
  void handle_result(const WorkerInfo& from, const std::string& body, const Answer& answer);
  absl::Status check_set(const std::vector<std::string>& names, const GatherKey& key,
                         const std::string& from) const;
  void advance(const GatherKey& key);
  void lead(const GatherKey& key, Slot& slot);
  void follow(const GatherKey& key, Slot& slot, const std::string& leader);
  void on_answer(const GatherKey& key, const std::string& leader, const Outcome& outcome);
  void on_result(const GatherKey& key, const std::string& from, const Outcome& outcome);
  void on_deadline(const GatherKey& key);
  void lose(const WorkerInfo& worker);
  void forget_lost();
  void finish(const GatherKey& key, const Outcome& outcome);
  bool is_gone(const Slot& slot, const std::string& name) const;
  std::string leader_of(const GatherKey& key, const Slot& slot) const;
  std::vector<std::string> missing(const Slot& slot) const;

  ControlPlane& plane_;
  Directory& directory_;
  const std::string self_;
  Scheduler& scheduler_;
  const std::shared_ptr<Strand> strand_;

  // Touched on the strand only.
  Slots slots_;
  GatherHistories histories_;
  // Those that the directory may still name, and the last one.
  std::set<Incarnation> lost_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

template <class F>
void GatherCore::post(F step) {
  strand_->post([weak = weak_from_this(), step = std::move(step)]() mutable {
    const std::shared_ptr<GatherCore> self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(self->mutex_);
      if (self->closed_) return;
    }
    step(*self);
  });
}

void GatherCore::add_methods() {
  add_method("sinew.gather", &GatherCore::handle_value);
  add_method("sinew.gather.result", &GatherCore::handle_result);
}

void GatherCore::add_method(std::string name, Handler handler) {
  plane_.add_control_method(std::move(name), [weak = weak_from_this(), handler](
                                                 const WorkerInfo& from, std::string body) {
    const std::shared_ptr<GatherCore> self = weak.lock();
    if (self == nullptr) {
      return make_failed_future<std::string>(
          make_error(absl::UnavailableError("this worker shuts down")));
    }
    const Answer answer(self->scheduler_.executor());
    self->post([handler, from, body = std::move(body), answer](GatherCore& core) {
      (core.*handler)(from, body, answer);
    });
    return answer.future();
  });
}

Future<Values> GatherCore::start(std::vector<std::string> names, std::string value,
                                 nanoseconds timeout, LossMode mode) {
  const Promise<Values> own(scheduler_.executor());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (!std::binary_search(names.begin(), names.end(), self_)) {
    own.set_error(RpcError(ErrorCode::kInvalidArgument,
                           absl::StrCat("a gather of worker '", self_,
                                        "' lacks this worker's own name; add it to the set")));
    return own.future();
  }
  post([names = std::move(names), value = std::move(value), timeout, mode,
        own](GatherCore& core) mutable {
    core.join_in(std::move(names), std::move(value), timeout, mode, own);
  });
  return own.future();
}

absl::StatusOr<std::vector<WorkerInfo>> GatherCore::find_members(
    const std::vector<std::string>& names) const {
  std::vector<WorkerInfo> members;
  for (const std::string& name : names) {
    const absl::StatusOr<Member> member = directory_.find(name);
    if (!member.ok()) return member.status();
    if (lost_.count(member->worker.incarnation) > 0) {
      return absl::UnavailableError(absl::StrCat("worker '", name, "' is lost, so a gather of ",
                                                 shown(names), " cannot succeed"));
    }
    members.push_back(member->worker);
  }
  return members;
}

void GatherCore::join_in(std::vector<std::string> names, std::string value, nanoseconds timeout,
                         LossMode mode, const Promise<Values>& own) {
  std::vector<WorkerInfo> members;
  std::uint32_t epoch = 0;
  if (mode == LossMode::kFail) {
    absl::StatusOr<std::vector<WorkerInfo>> found = find_members(names);
    if (!found.ok()) {
      own.set_error(make_error(found.status()));
      return;
    }
    members = *std::move(found);
    epoch = fingerprint(members);
  }
  const GatherKey key = histories_.begin(absl::StrJoin(names, ","), epoch, members);
  Slot& slot = slots_[key];
  slot.names = std::move(names);
  slot.own = own;
  slot.members = std::move(members);
  slot.values[self_] = std::move(value);
  slot.timeout = timeout;
  slot.deadline = deadline_after(scheduler_.now(), timeout);
  if (slot.deadline != Scheduler::TimePoint::max()) {
    slot.timer = scheduler_.run_at(slot.deadline, [weak = weak_from_this(), key] {
      const std::shared_ptr<GatherCore> self = weak.lock();
      if (self != nullptr) self->post([key](GatherCore& core) { core.on_deadline(key); });
    });
  }
  advance(key);
}

absl::Status GatherCore::check_set(const std::vector<std::string>& names, const GatherKey& key,
                                   const std::string& from) const {
  const bool sane = names.size() <= kMostNames && std::is_sorted(names.begin(), names.end()) &&
                    std::adjacent_find(names.begin(), names.end()) == names.end() &&
                    std::all_of(names.begin(), names.end(), [](const std::string& name) {
                      return validate_worker_name(name).ok();
                    });
  if (!sane) {
    return absl::InvalidArgumentError("the names of a GatherRequest are not sorted worker names");
  }
  const bool both_in = std::binary_search(names.begin(), names.end(), from) &&
                       std::binary_search(names.begin(), names.end(), self_);
  if (!both_in) {
    return absl::PermissionDeniedError(absl::StrCat("a gather of ", shown(names),
                                                    " has nothing to do with worker '", from,
                                                    "' or with '", self_, "'"));
  }
  if (mode_of(key) == LossMode::kFail && names.front() != self_) {
    return absl::FailedPreconditionError(absl::StrCat("worker '", self_,
                                                      "' does not lead a gather of ", shown(names),
                                                      "; '", names.front(), "' does"));
  }
  return absl::OkStatus();
}

void GatherCore::handle_value(const WorkerInfo& from, const std::string& body,
                              const Answer& answer) {
  absl::StatusOr<proto::GatherRequest> request = parse_request(body, from);
  if (!request.ok()) return reply_with(answer, request.status());
  const GatherKey key{request->names(), request->sequence()};
  const std::vector<std::string> names = absl::StrSplit(request->names(), ',');
  const absl::Status checked = check_set(names, key, from.name);
  if (!checked.ok()) return reply_with(answer, checked);
  if (const Outcome* outcome = histories_.find(key)) return reply_with(answer, *outcome);
  const bool exists = slots_.count(key) > 0;
  if (histories_.has_begun(key) && !exists) {
    return reply_with(answer, absl::FailedPreconditionError(
                                  absl::StrCat("this gather of ", shown(names), " is over")));
  }
  const auto unjoined = std::count_if(slots_.begin(), slots_.end(), [&](const auto& each) {
    return !each.second.own && each.second.values.count(from.name) > 0;
  });
  if (!exists && static_cast<std::size_t>(unjoined) >= kMostUnjoined) {
    return reply_with(answer, absl::ResourceExhaustedError(absl::StrCat(
                                  "worker '", from.name, "' has ", unjoined,
                                  " gathers under way that '", self_, "' has not joined")));
  }
  Slot& slot = slots_[key];
  slot.names = names;
  slot.values.emplace(from.name, std::move(*request->mutable_value()));
  slot.waiters.push_back({from, answer});
  advance(key);
}

void GatherCore::handle_result(const WorkerInfo& from, const std::string& body,
                               const Answer& answer) {
  const absl::StatusOr<proto::GatherRequest> request = parse_request(body, from);
  if (!request.ok()) return reply_with(answer, request.status());
  const GatherKey key{request->names(), request->sequence()};
  const Outcome* outcome = histories_.find(key);
  const bool known = outcome != nullptr && outcome->ok();
  reply_with(answer, known ? *outcome
                           : Outcome(absl::NotFoundError("this gather has no outcome here yet")));
}

bool GatherCore::is_gone(const Slot& slot, const std::string& name) const {
  if (name == self_) return false;
  if (slot.gone.count(name) > 0) return true;
  const absl::StatusOr<Member> member = directory_.find(name);
  return !member.ok() || lost_.count(member->worker.incarnation) > 0;
}

std::string GatherCore::leader_of(const GatherKey& key, const Slot& slot) const {
  if (mode_of(key) == LossMode::kFail) return slot.names.front();
  const auto leader = std::find_if(slot.names.begin(), slot.names.end(),
                                   [&](const std::string& name) { return !is_gone(slot, name); });
  return *leader;  // this worker at the latest
}

std::vector<std::string> GatherCore::missing(const Slot& slot) const {
  std::vector<std::string> names;
  for (const std::string& name : slot.names) {
    if (slot.values.count(name) == 0 && !is_gone(slot, name)) names.push_back(name);
  }
  return names;
}

void GatherCore::advance(const GatherKey& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end() || !found->second.own) return;
  Slot& slot = found->second;
  for (const WorkerInfo& member : slot.members) {
    if (lost_.count(member.incarnation) == 0) continue;
    finish(key, absl::UnavailableError(absl::StrCat(
                    "worker '", member.name, "' was lost during a gather of ", shown(slot.names))));
    return;
  }
  const std::string leader = leader_of(key, slot);
  if (leader == self_) {
    lead(key, slot);
  } else if (leader != slot.followed) {
    follow(key, slot, leader);
  }
}

void GatherCore::lead(const GatherKey& key, Slot& slot) {
  if (missing(slot).empty()) {
    Values values;
    for (const std::string& name : slot.names) values.push_back(std::move(slot.values[name]));
    finish(key, std::move(values));
    return;
  }
  if (slot.names.front() == self_) return;
  // The leader before us may have answered some of the others, who will not come to us then.
  const std::vector<std::string> others = missing(slot);
  for (const std::string& name : others) {
    if (!slot.asked.insert(name).second) continue;
    call(name, "sinew.gather.result", key, slot, &GatherCore::on_result);
  }
}

void GatherCore::follow(const GatherKey& key, Slot& slot, const std::string& leader) {
  slot.followed = leader;
  call(leader, "sinew.gather", key, slot, &GatherCore::on_answer);
}

void GatherCore::call(const std::string& to, std::string_view method, const GatherKey& key,
                      const Slot& slot,
                      void (GatherCore::*on_reply)(const GatherKey&, const std::string&,
                                                   const Outcome&)) {
  const absl::StatusOr<Member> member = directory_.find(to);
  if (!member.ok()) {
    post([key, to, on_reply, status = member.status()](GatherCore& core) {
      (core.*on_reply)(key, to, status);
    });
    return;
  }
  proto::GatherRequest request;
  request.set_names(key.names);
  request.set_sequence(key.sequence);
  request.set_name(self_);
  if (method == "sinew.gather") request.set_value(slot.values.at(self_));
  const nanoseconds left = slot.deadline == Scheduler::TimePoint::max()
                               ? nanoseconds::max()
                               : slot.deadline - scheduler_.now();
  const Future<std::string> reply = plane_.control_call(
      member->worker, method, request.SerializeAsString(), std::max(left, nanoseconds(1)));
  reply.on_done([weak = weak_from_this(), key, to, on_reply](const Future<std::string>& done) {
    const std::shared_ptr<GatherCore> self = weak.lock();
    if (self == nullptr) return;
    Outcome outcome;
    proto::GatherResponse response;
    if (const std::exception_ptr error = done.error()) {
      outcome = to_status(error);
    } else if (response.ParseFromString(done.value())) {
      outcome = Values(response.values().begin(), response.values().end());
    } else {
      outcome = absl::InternalError(absl::StrCat("worker '", to, "' sent no GatherResponse"));
    }
    self->post([key, to, on_reply, outcome = std::move(outcome)](GatherCore& core) {
      (core.*on_reply)(key, to, outcome);
    });
  });
}

void GatherCore::on_answer(const GatherKey& key, const std::string& leader,
                           const Outcome& outcome) {
  const auto found = slots_.find(key);
  if (found == slots_.end() || !found->second.own) return;
  Slot& slot = found->second;
  if (outcome.ok() && outcome->size() != slot.names.size()) {
    finish(key, absl::InternalError(absl::StrCat("the leader '", leader, "' of a gather of ",
                                                 slot.names.size(), " workers answered with ",
                                                 outcome->size(), " values")));
    return;
  }
  if (outcome.ok()) return finish(key, outcome);
  const absl::Status& status = outcome.status();
  const bool is_gone = absl::IsUnavailable(status) || absl::IsNotFound(status);
  if (is_gone && mode_of(key) == LossMode::kTolerate) {
    slot.gone.insert(leader);
    advance(key);
    return;
  }
  if (absl::IsDeadlineExceeded(status) && scheduler_.now() >= slot.deadline) {
    return on_deadline(key);
  }
  finish(key, absl::Status(status.code(),
                           absl::StrCat("gather led by '", leader, "': ", status.message())));
}

void GatherCore::on_result(const GatherKey& key, const std::string&, const Outcome& outcome) {
  const auto found = slots_.find(key);
  if (found == slots_.end() || !outcome.ok()) return;
  if (outcome->size() == found->second.names.size()) finish(key, outcome);
}

void GatherCore::on_deadline(const GatherKey& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end() || !found->second.own) return;
  const Slot& slot = found->second;
  const std::string leader = leader_of(key, slot);
  std::string text = absl::StrCat("gather of ", shown(slot.names), ": ");
  if (leader == self_) {
    absl::StrAppend(&text, shown(missing(slot)), " did not come within ");
  } else {
    absl::StrAppend(&text, "the leader '", leader, "' did not answer within ");
  }
  finish(key, absl::DeadlineExceededError(absl::StrCat(text, seconds_text(slot.timeout))));
}

void GatherCore::on_worker_lost(const WorkerInfo& worker) {
  post([worker](GatherCore& core) { core.lose(worker); });
}

void GatherCore::lose(const WorkerInfo& worker) {
  forget_lost();
  lost_.insert(worker.incarnation);
  std::vector<GatherKey> concerned;
  for (auto each = slots_.begin(); each != slots_.end();) {
    Slot& slot = each->second;
    const bool in_set = std::binary_search(slot.names.begin(), slot.names.end(), worker.name);
    if (!in_set) {
      ++each;
      continue;
    }
    const auto is_its = [&](const Waiter& waiter) {
      return waiter.worker.incarnation == worker.incarnation;
    };
    const auto its = std::remove_if(slot.waiters.begin(), slot.waiters.end(), is_its);
    const bool had_come = its != slot.waiters.end();
    slot.waiters.erase(its, slot.waiters.end());
    if (slot.own) {
      slot.gone.insert(worker.name);
      concerned.push_back(each->first);
    } else if (had_come) {
      slot.values.erase(worker.name);
      if (slot.values.empty()) {
        each = slots_.erase(each);
        continue;
      }
    }
    ++each;
  }
  for (const GatherKey& key : concerned) advance(key);
  histories_.on_lost(worker.incarnation);
}

// Whom no list names any more nobody can ask for.
void GatherCore::forget_lost() {
  if (lost_.empty()) return;
  std::set<Incarnation> present;
  for (const Member& member : directory_.members()) present.insert(member.worker.incarnation);
  for (auto each = lost_.begin(); each != lost_.end();) {
    each = present.count(*each) > 0 ? std::next(each) : lost_.erase(each);
  }
}

void GatherCore::finish(const GatherKey& key, const Outcome& outcome) {
  const auto found = slots_.find(key);
  const Slot slot = std::move(found->second);
  slots_.erase(found);
  if (slot.timer != 0) scheduler_.cancel(slot.timer);
  // Who has lost its leader may ask for it again, in kTolerate mode. In kFail mode those alone ask
  // later without whom it has failed: otherwise all have had their answer.
  if (mode_of(key) == LossMode::kTolerate || !outcome.ok()) histories_.add_end(key, outcome);
  for (const Waiter& waiter : slot.waiters) reply_with(waiter.answer, outcome);
  if (outcome.ok()) {
    slot.own->try_set_value(*outcome);
  } else {
    slot.own->try_set_error(make_error(outcome.status()));
  }
}

Gather::Gather(ControlPlane& plane, Directory& directory, std::string self, Scheduler& scheduler)
    : core_(std::make_shared<GatherCore>(plane, directory, std::move(self), scheduler)) {
  core_->add_methods();
}

Gather::~Gather() { core_->close(); }

Future<Values> Gather::all_gather_async(const std::vector<std::string>& names, std::string value,
                                        nanoseconds timeout, LossMode mode) {
  return core_->start(names, std::move(value), timeout, mode);
}

Future<void> Gather::barrier_async(const std::vector<std::string>& names, nanoseconds timeout,
                                   LossMode mode) {
  return core_->start(names, {}, timeout, mode).then([](const Values&) {});
}

void Gather::on_worker_lost(const WorkerInfo& worker) { core_->on_worker_lost(worker); }

}  // namespace sinew::internal
