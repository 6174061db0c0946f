#include "sinew/rpc/planes/plane_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/plane.pb.h"

namespace sinew::internal {
namespace {

// How long a plane rests after a failure: at first, and when it fails again and again.
constexpr auto kFirstRest = std::chrono::seconds(1);
constexpr auto kLongestRest = std::chrono::minutes(1);

proto::PlaneMessage message_about(std::uint32_t plane) {
  proto::PlaneMessage message;
  message.set_plane(plane);
  return message;
}

}  // namespace

void PlaneSet::prepare(ConnectionEnds ends, std::weak_ptr<void> owner, OnAnswer on_answer) {
  ends_ = std::move(ends);
  owner_ = std::move(owner);
  on_answer_ = std::move(on_answer);
  bool wanted = false;
  {
    MutexLock lock(mutex_);
    prepared_ = true;
    wanted = wanted_;
  }
  if (wanted) begin();
}

bool PlaneSet::begin() {
  {
    MutexLock lock(mutex_);
    wanted_ = true;
    if (!prepared_) return false;
  }
  bool first = false;
  std::call_once(begun_, [&] {
    first = true;
    open_planes();
  });
  return first;
}

void PlaneSet::open_planes() {
  std::vector<std::string> messages;
  {
    MutexLock lock(mutex_);
    // Not empty: there was no memory the last time.
    if (closed_ || !entries_.empty()) return;
    entries_.reserve(planes_.planes.size());
    for (const std::shared_ptr<PullPlane>& plane : planes_.planes) {
      std::shared_ptr<PullLink> link = plane->open(ends_);
      Entry& entry = entries_.emplace_back();
      entry.plane = plane.get();
      entry.link = std::move(link);
      proto::PlaneMessage message = message_about(plane->number());
      message.set_challenge(entry.link->challenge());
      messages.push_back(message.SerializeAsString());
    }
  }
  if (!messages.empty()) on_answer_(std::move(messages));
}

PlaneSet::Entry* PlaneSet::find_locked(std::uint32_t plane) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.plane->number() == plane;
  });
  return found == entries_.end() ? nullptr : &*found;
}

void PlaneSet::on_message(const std::string& bytes) {
  proto::PlaneMessage message;
  if (!message.ParseFromString(bytes)) {
    on_answer_(absl::InvalidArgumentError("malformed message about a plane"));
    return;
  }
  begin();
  std::shared_ptr<PullLink> link;
  bool again = false;
  {
    MutexLock lock(mutex_);
    Entry* const entry = find_locked(message.plane());
    // Of a plane that only the other end has, or this end does not offer.
    if (entry == nullptr || closed_) return;
    if (message.has_proven()) {
      entry->may_locate = message.proven();
      return;
    }
    if (message.has_proof()) again = std::exchange(entry->was_verified, true);
    link = entry->link;
  }
  if (again) {
    on_answer_(absl::InvalidArgumentError("the proof of a plane came twice"));
    return;
  }
  // Without the lock: both take system calls.
  if (message.has_proof()) {
    verify(*link, message.plane(), message.proof());
  } else {
    prove(*link, message.plane(), message.challenge());
  }
}

void PlaneSet::prove(PullLink& link, std::uint32_t plane, const std::string& challenge) {
  absl::StatusOr<std::string> proof = link.prove(challenge);
  if (absl::IsInvalidArgument(proof.status())) {
    on_answer_(proof.status());
    return;
  }
  if (!proof.ok()) return;
  proto::PlaneMessage answer = message_about(plane);
  answer.set_proof(*std::move(proof));
  on_answer_(std::vector<std::string>{answer.SerializeAsString()});
}

void PlaneSet::verify(PullLink& link, std::uint32_t plane, const std::string& proof) {
  link.verify(proof, [this, owner = owner_, plane](const absl::Status& status) {
    if (const std::shared_ptr<void> alive = owner.lock()) on_verified(plane, status);
  });
}

void PlaneSet::on_verified(std::uint32_t plane, const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) {
    on_answer_(status);
    return;
  }
  {
    MutexLock lock(mutex_);
    Entry* const entry = find_locked(plane);
    if (entry == nullptr || closed_) return;
    entry->may_fetch = status.ok();
    // kNotFound: an ordinary reason, such as another host.
    if (!status.ok() && !absl::IsNotFound(status) && !planes_.said_unreachable.exchange(true)) {
      planes_.log(absl::StrCat("no tensors from a peer by ", entry->plane->name(),
                               ", they come through gRPC: ", status.message()));
    }
  }
  if (!status.ok()) return;
  proto::PlaneMessage answer = message_about(plane);
  answer.set_proven(true);
  on_answer_(std::vector<std::string>{answer.SerializeAsString()});
}

PlaneSet::Location PlaneSet::locate(const absl::Cord& payload) {
  {
    MutexLock lock(mutex_);
    for (Entry& entry : entries_) {
      if (!entry.may_locate || closed_) continue;
      if (entry.rest.count() > 0 && Clock::system().now() < entry.rests_until) continue;
      std::optional<std::string> location = entry.link->locate(payload);
      if (location.has_value()) return {entry.plane->number(), *std::move(location)};
    }
    if (wanted_) return {};
  }
  begin();
  return {};
}

void PlaneSet::release(const Location& location) {
  std::shared_ptr<PullLink> link;
  {
    MutexLock lock(mutex_);
    if (const Entry* const entry = find_locked(location.plane)) link = entry->link;
  }
  if (link != nullptr) link->release(location.text);
}

void PlaneSet::on_failed(std::uint32_t plane) {
  const Clock::TimePoint now = Clock::system().now();
  MutexLock lock(mutex_);
  Entry* const entry = find_locked(plane);
  // Others that were on their way may fail too, and say nothing new.
  if (entry == nullptr || (entry->rest.count() > 0 && now < entry->rests_until)) return;
  const bool again = now - entry->rests_until < entry->rest * 2;
  entry->rest = again ? std::min<std::chrono::nanoseconds>(entry->rest * 2, kLongestRest)
                      : std::chrono::nanoseconds(kFirstRest);
  entry->rests_until = now + entry->rest;
}

void PlaneSet::fetch(std::uint32_t plane, absl::string_view location, PullTarget target,
                     PullLink::OnEnd on_end) {
  std::shared_ptr<PullLink> link;
  {
    MutexLock lock(mutex_);
    const Entry* const entry = find_locked(plane);
    if (entry != nullptr && entry->may_fetch && !closed_) link = entry->link;
  }
  if (link == nullptr) {
    std::move(on_end)(absl::InvalidArgumentError(
        absl::StrCat("a payload is located by plane ", plane, ", which this end has no proof of")));
    return;
  }
  const std::size_t size_bytes = target.size_bytes;
  link->fetch(location, std::move(target),
              [this, plane, size_bytes, on_end = std::move(on_end)](absl::Status status) mutable {
                on_fetched(plane, size_bytes, status);
                std::move(on_end)(std::move(status));
              });
}

void PlaneSet::on_fetched(std::uint32_t plane, std::size_t size_bytes, const absl::Status& status) {
  if (status.ok()) {
    planes_.fetched_bytes += static_cast<std::int64_t>(size_bytes);
    ++planes_.fetched_transfers;
    return;
  }
  ++planes_.failed_transfers;
  MutexLock lock(mutex_);
  Entry* const entry = find_locked(plane);
  if (entry == nullptr || closed_ || std::exchange(entry->has_logged, true)) return;
  planes_.log(absl::StrCat("a tensor could not be fetched by ", entry->plane->name(),
                           ", it comes through gRPC: ", status.message()));
}

bool PlaneSet::fetches_in_place(std::uint32_t plane) {
  MutexLock lock(mutex_);
  const Entry* const entry = find_locked(plane);
  return entry != nullptr && entry->link->fetches_in_place();
}

std::vector<std::string> PlaneSet::texts() const {
  std::vector<std::string> texts;
  MutexLock lock(mutex_);
  if (!wanted_ && !planes_.planes.empty()) return {"no large tensor has gone yet"};
  for (const Entry& entry : entries_) {
    const bool rests = entry.rests_until > Clock::system().now();
    const char* const state = rests                                    ? "rests after a failure"
                              : entry.may_fetch && entry.may_locate    ? "both ways"
                              : entry.may_fetch                        ? "from there alone"
                              : entry.may_locate                       ? "from here alone"
                              : entry.was_verified || entry.has_logged ? "does not reach it"
                                                                       : "being found out";
    texts.push_back(absl::StrCat(entry.plane->name(), ": ", state));
  }
  return texts;
}

std::shared_ptr<const ProcessHold> PlaneSet::process() const {
  MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (auto process = entry.link->process(); process != nullptr) return process;
  }
  return nullptr;
}

void PlaneSet::close() {
  std::vector<std::shared_ptr<PullLink>> links;
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    for (const Entry& entry : entries_) links.push_back(entry.link);
  }
  for (const auto& link : links) link->close();
}

}  // namespace sinew::internal
