#include "sinew/rpc/membership/peer_gather.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/coordinator.h"
#include "sinew/rpc/membership/gather_core.h"
#include "sinew/rpc/membership/member_codec.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;

// Gathers that one worker may have begun with us and that we have not joined yet.
constexpr std::size_t kMostUnjoined = 1024;
constexpr std::size_t kMostNames = 65536;
constexpr std::size_t kMostNamed = 16;
constexpr std::size_t kMostLossText = 4096;

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

std::string GatherCore::shown(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kMostNamed);
  std::string text = absl::StrCat(
      "'", absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), "', '"),
      "'");
  if (count < names.size()) absl::StrAppend(&text, " and ", names.size() - count, " more");
  return text;
}

// FNV-1a. It must be the same in every process, which absl::Hash is not.
std::uint32_t GatherCore::fingerprint(const std::vector<WorkerInfo>& members) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const WorkerInfo& member : members) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ ((member.incarnation.value >> shift) & 0xff)) * 0x100000001b3;
    }
  }
  const auto folded = static_cast<std::uint32_t>(hash ^ (hash >> 32));
  return folded == 0 ? 1 : folded;
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

Future<GatherCore::Values> GatherCore::start(std::vector<std::string> names, std::string value,
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
  // Now: they may be replaced before the strand comes to it.
  std::vector<absl::StatusOr<Member>> listed;
  if (mode == LossMode::kFail) listed = look_up(names);
  post([names = std::move(names), value = std::move(value), timeout, listed = std::move(listed),
        own](GatherCore& core) mutable {
    core.join_in(std::move(names), std::move(value), timeout, listed, own);
  });
  return own.future();
}

std::vector<absl::StatusOr<Member>> GatherCore::look_up(
    const std::vector<std::string>& names) const {
  std::vector<absl::StatusOr<Member>> listed;
  listed.reserve(names.size());
  for (const std::string& name : names) listed.push_back(directory_.find(name));
  return listed;
}

// Also who has left: it may have come before, and the others are to be told if it has not.
absl::StatusOr<std::vector<WorkerInfo>> GatherCore::find_members(
    const std::vector<std::string>& names,
    const std::vector<absl::StatusOr<Member>>& listed) const {
  std::vector<WorkerInfo> members;
  members.reserve(listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const std::optional<WorkerInfo> found =
        listed[i].ok() ? std::make_optional(listed[i]->worker) : departures_.last_of(names[i]);
    if (!found.has_value()) return listed[i].status();
    members.push_back(*found);
  }
  return members;
}

void GatherCore::join_in(std::vector<std::string> names, std::string value, nanoseconds timeout,
                         const std::vector<absl::StatusOr<Member>>& listed,
                         const Promise<Values>& own) {
  const LossMode mode = listed.empty() ? LossMode::kTolerate : LossMode::kFail;
  absl::StatusOr<std::vector<WorkerInfo>> found = find_members(names, listed);
  if (!found.ok()) return own.set_error(make_error(found.status()));
  std::vector<WorkerInfo> members = *std::move(found);
  const std::uint32_t epoch = mode == LossMode::kFail ? fingerprint(members) : 0;
  const GatherKey key = histories_.begin(absl::StrJoin(names, ","), epoch, members);
  Slot& slot = slots_[key];
  slot.names = std::move(names);
  slot.own = own;
  slot.members = std::move(members);
  slot.values[self_].bytes = std::move(value);
  slot.timeout = timeout;
  slot.deadline = deadline_after(scheduler_.now(), timeout);
  if (slot.deadline != Scheduler::TimePoint::max()) {
    slot.timer = scheduler_.run_at(slot.deadline, [weak = weak_from_this(), key] {
      const std::shared_ptr<GatherCore> self = weak.lock();
      if (self != nullptr) self->post([key](GatherCore& core) { core.on_deadline(key); });
    });
  }
  const WorkerInfo* hopeless = mode == LossMode::kFail ? find_hopeless(slot) : nullptr;
  if (hopeless == nullptr) return advance(key);
  finish(key, status_without(*hopeless, slot));
}

absl::Status GatherCore::check_set(const std::vector<std::string>& names,
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
  return absl::OkStatus();
}

// Whether there is, or may be, such a gather here: what follows from a value that says so.
absl::Status GatherCore::check_begun(const std::vector<std::string>& names, const GatherKey& key,
                                     const WorkerInfo& from) const {
  const bool exists = slots_.count(key) > 0;
  if (exists) return absl::OkStatus();
  if (histories_.has_begun(key)) {
    return absl::FailedPreconditionError(absl::StrCat("this gather of ", shown(names), " is over"));
  }
  // Without this worker it cannot have been complete anywhere.
  if (mode_of(key) == LossMode::kFail && names.front() != self_) {
    return absl::FailedPreconditionError(absl::StrCat("worker '", self_,
                                                      "' does not lead a gather of ", shown(names),
                                                      "; '", names.front(), "' does"));
  }
  const auto unjoined = std::count_if(slots_.begin(), slots_.end(), [&](const auto& each) {
    const auto value = each.second.values.find(from.name);
    return !each.second.own && value != each.second.values.end() &&
           value->second.from == from.incarnation;
  });
  if (static_cast<std::size_t>(unjoined) < kMostUnjoined) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("worker '", from.name, "' has ", unjoined,
                                                   " gathers under way that '", self_,
                                                   "' has not joined"));
}

void GatherCore::handle_value(const WorkerInfo& from, const std::string& body,
                              const Answer& answer) {
  absl::StatusOr<proto::GatherRequest> request = parse_request(body, from);
  if (!request.ok()) return reply_with(answer, request.status());
  const GatherKey key{request->names(), request->sequence()};
  const std::vector<std::string> names = absl::StrSplit(request->names(), ',');
  const absl::Status checked = check_set(names, from.name);
  if (!checked.ok()) return reply_with(answer, checked);
  if (const Outcome* outcome = histories_.find(key)) return reply_with(answer, *outcome);
  const absl::Status begun = check_begun(names, key, from);
  if (!begun.ok()) return reply_with(answer, begun);
  Slot& slot = slots_[key];
  slot.names = names;
  slot.values.emplace(from.name, Value{from.incarnation, std::move(*request->mutable_value())});
  slot.waiters.push_back({from, answer});
  fail_hopeless(key);
  advance(key);
}

// Whoever asks leads in the place of a leader that it takes for lost.
void GatherCore::handle_result(const WorkerInfo& from, const std::string& body,
                               const Answer& answer) {
  const absl::StatusOr<proto::GatherRequest> request = parse_request(body, from);
  if (!request.ok()) return reply_with(answer, request.status());
  const GatherKey key{request->names(), request->sequence()};
  const Outcome* outcome = histories_.find(key);
  if (outcome != nullptr && outcome->ok()) return reply_with(answer, *outcome);
  // The leader's answer may be on its way to here. Who waits for none never waits for each other.
  const auto found = slots_.find(key);
  if (mode_of(key) == LossMode::kFail && found != slots_.end() && found->second.own &&
      leader_of(key, found->second) != self_ && found->second.gone.empty()) {
    found->second.questions.push_back(answer);
    return;
  }
  reply_with(answer, absl::NotFoundError("this gather has no outcome here"));
}

void GatherCore::reply_with(const Answer& answer, const Outcome& outcome) {
  proto::GatherResponse response;
  if (outcome.ok()) {
    for (const std::string& value : *outcome) response.add_values(value);
  } else if (absl::IsUnavailable(outcome.status())) {
    response.set_lost(std::string(outcome.status().message()));
  } else {
    answer.try_set_error(make_error(outcome.status()));
    return;
  }
  answer.try_set_value(response.SerializeAsString());
}

void GatherCore::call(const std::string& to, std::string_view method, const GatherKey& key,
                      const Slot& slot, OnReply on_reply) {
  absl::StatusOr<WorkerInfo> worker;
  if (slot.members.empty()) {
    const absl::StatusOr<Member> member = directory_.find(to);
    worker = member.ok() ? absl::StatusOr<WorkerInfo>(member->worker) : member.status();
  } else {
    const auto at = std::lower_bound(slot.names.begin(), slot.names.end(), to);
    worker = slot.members[static_cast<std::size_t>(at - slot.names.begin())];
  }
  if (!worker.ok()) {
    post([key, to, on_reply, reply = Reply{worker.status()}](GatherCore& core) {
      (core.*on_reply)(key, to, reply);
    });
    return;
  }
  proto::GatherRequest request;
  request.set_names(key.names);
  request.set_sequence(key.sequence);
  request.set_name(self_);
  if (method == "sinew.gather") request.set_value(slot.values.at(self_).bytes);
  const nanoseconds left = slot.deadline == Scheduler::TimePoint::max()
                               ? nanoseconds::max()
                               : slot.deadline - scheduler_.now();
  const Future<std::string> answer = plane_.control_call(
      *worker, method, request.SerializeAsString(), std::max(left, nanoseconds(1)));
  answer.on_done([weak = weak_from_this(), key, to, on_reply](const Future<std::string>& done) {
    const std::shared_ptr<GatherCore> self = weak.lock();
    if (self == nullptr) return;
    Reply reply;
    proto::GatherResponse response;
    if (const std::exception_ptr error = done.error()) {
      reply.outcome = to_status(error);
    } else if (!response.ParseFromString(done.value())) {
      reply.outcome = absl::InternalError(absl::StrCat("worker '", to, "' sent no GatherResponse"));
    } else if (!response.lost().empty()) {
      reply = {absl::UnavailableError(printable(response.lost(), kMostLossText)), true};
    } else {
      reply = {Values(response.values().begin(), response.values().end()), true};
    }
    self->post([key, to, on_reply, reply = std::move(reply)](GatherCore& core) {
      (core.*on_reply)(key, to, reply);
    });
  });
}

PeerGather::PeerGather(ControlPlane& plane, Directory& directory, std::string self,
                       Scheduler& scheduler)
    : core_(std::make_shared<GatherCore>(plane, directory, std::move(self), scheduler)) {
  core_->add_methods();
}

PeerGather::~PeerGather() { core_->close(); }

Future<std::vector<std::string>> PeerGather::all_gather_async(const std::vector<std::string>& names,
                                                              std::string value,
                                                              nanoseconds timeout, LossMode mode) {
  return core_->start(names, std::move(value), timeout, mode);
}

Future<void> PeerGather::end(const absl::Status& reason) { return core_->end(reason); }

void PeerGather::on_worker_lost(const WorkerInfo& worker, Departure how) {
  core_->on_worker_lost(worker, how);
}

void PeerGather::on_worker_gone(const WorkerInfo& worker, Departure how) {
  core_->on_worker_gone(worker, how);
}

}  // namespace sinew::internal
