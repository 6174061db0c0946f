#include "sinew/rpc/transport/plane/plane_set.h"

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

std::vector<std::string> PlaneSet::begin(const std::string& local_hello,
                                         const std::string& remote_hello) {
  std::vector<std::string> messages;
  absl::MutexLock lock(&mutex_);
  if (closed_) return messages;
  for (const std::shared_ptr<PullPlane>& plane : planes_.planes) {
    Entry& entry = entries_.emplace_back();
    entry.plane = plane.get();
    entry.link = plane->open(local_hello, remote_hello);
    proto::PlaneMessage message = message_about(plane->number());
    message.set_challenge(entry.link->challenge());
    messages.push_back(message.SerializeAsString());
  }
  return messages;
}

PlaneSet::Entry* PlaneSet::find_locked(std::uint32_t plane) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.plane->number() == plane;
  });
  return found == entries_.end() ? nullptr : &*found;
}

absl::StatusOr<std::vector<std::string>> PlaneSet::on_message(const std::string& bytes) {
  proto::PlaneMessage message;
  if (!message.ParseFromString(bytes)) {
    return absl::InvalidArgumentError("malformed message about a plane");
  }
  std::shared_ptr<PullLink> link;
  {
    absl::MutexLock lock(&mutex_);
    Entry* const entry = find_locked(message.plane());
    // Of a plane that only the other end has, or this end does not offer.
    if (entry == nullptr || closed_) return std::vector<std::string>();
    if (message.has_proven()) {
      entry->may_locate = message.proven();
      return std::vector<std::string>();
    }
    if (message.has_proof() && std::exchange(entry->was_verified, true)) {
      return absl::InvalidArgumentError("the proof of a plane came twice");
    }
    link = entry->link;
  }
  // Without the lock: both take system calls.
  return message.has_proof() ? verify(*link, message.plane(), message.proof())
                             : prove(*link, message.plane(), message.challenge());
}

absl::StatusOr<std::vector<std::string>> PlaneSet::prove(PullLink& link, std::uint32_t plane,
                                                         const std::string& challenge) const {
  absl::StatusOr<std::string> proof = link.prove(challenge);
  if (absl::IsInvalidArgument(proof.status())) return proof.status();
  if (!proof.ok()) return std::vector<std::string>();
  proto::PlaneMessage answer = message_about(plane);
  answer.set_proof(*std::move(proof));
  return std::vector<std::string>{answer.SerializeAsString()};
}

absl::StatusOr<std::vector<std::string>> PlaneSet::verify(PullLink& link, std::uint32_t plane,
                                                          const std::string& proof) {
  const absl::Status status = link.verify(proof);
  if (absl::IsInvalidArgument(status)) return status;
  if (!status.ok()) {
    // kNotFound: an ordinary reason, such as another host.
    if (!absl::IsNotFound(status) && !planes_.said_unreachable.exchange(true)) {
      absl::MutexLock lock(&mutex_);
      if (const Entry* const entry = find_locked(plane)) {
        planes_.log(absl::StrCat("no tensors from a peer by ", entry->plane->name(),
                                 ", they come through gRPC: ", status.message()));
      }
    }
    return std::vector<std::string>();
  }
  absl::MutexLock lock(&mutex_);
  Entry* const entry = find_locked(plane);
  if (entry == nullptr || closed_) return std::vector<std::string>();
  entry->may_fetch = true;
  proto::PlaneMessage answer = message_about(plane);
  answer.set_proven(true);
  return std::vector<std::string>{answer.SerializeAsString()};
}

PlaneSet::Location PlaneSet::locate(absl::string_view bytes) {
  absl::MutexLock lock(&mutex_);
  for (Entry& entry : entries_) {
    if (!entry.may_locate || closed_) continue;
    if (entry.rest.count() > 0 && Clock::system().now() < entry.rests_until) continue;
    std::optional<std::string> location = entry.link->locate(bytes);
    if (location.has_value()) return {entry.plane->number(), *std::move(location)};
  }
  return {};
}

void PlaneSet::on_failed(std::uint32_t plane) {
  const Clock::TimePoint now = Clock::system().now();
  absl::MutexLock lock(&mutex_);
  Entry* const entry = find_locked(plane);
  // Others that were on their way may fail too, and say nothing new.
  if (entry == nullptr || (entry->rest.count() > 0 && now < entry->rests_until)) return;
  const bool again = now - entry->rests_until < entry->rest * 2;
  entry->rest = again ? std::min<std::chrono::nanoseconds>(entry->rest * 2, kLongestRest)
                      : std::chrono::nanoseconds(kFirstRest);
  entry->rests_until = now + entry->rest;
}

void PlaneSet::fetch(std::uint32_t plane, absl::string_view location, char* to,
                     std::size_t size_bytes, PullLink::OnEnd on_end) {
  std::shared_ptr<PullLink> link;
  {
    absl::MutexLock lock(&mutex_);
    const Entry* const entry = find_locked(plane);
    if (entry != nullptr && entry->may_fetch && !closed_) link = entry->link;
  }
  if (link == nullptr) {
    std::move(on_end)(absl::InvalidArgumentError(
        absl::StrCat("a payload is located by plane ", plane, ", which this end has no proof of")));
    return;
  }
  link->fetch(location, to, size_bytes,
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
  absl::MutexLock lock(&mutex_);
  Entry* const entry = find_locked(plane);
  if (entry == nullptr || closed_ || std::exchange(entry->has_logged, true)) return;
  planes_.log(absl::StrCat("a tensor could not be fetched by ", entry->plane->name(),
                           ", it comes through gRPC: ", status.message()));
}

bool PlaneSet::fetches_in_place(std::uint32_t plane) {
  absl::MutexLock lock(&mutex_);
  const Entry* const entry = find_locked(plane);
  return entry != nullptr && entry->link->fetches_in_place();
}

void PlaneSet::close() {
  std::vector<std::shared_ptr<PullLink>> links;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(closed_, true)) return;
    for (const Entry& entry : entries_) links.push_back(entry.link);
  }
  for (const auto& link : links) link->close();
}

}  // namespace sinew::internal
