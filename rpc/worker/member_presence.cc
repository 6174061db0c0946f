#include "sinew/rpc/worker/member_presence.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/internal/nearest_names.h"

namespace sinew::internal {

void MemberPresence::on_event(const MemberEvent& event, TimePoint now) {
  switch (event.kind) {
    case MemberEvent::Kind::kJoined:
      present_.insert_or_assign(event.worker.name, event.worker);
      break;
    case MemberEvent::Kind::kLost:
    case MemberEvent::Kind::kLeft: {
      note_gone(event, now);
      const auto found = present_.find(event.worker.name);
      const bool is_it =
          found != present_.end() && found->second.incarnation == event.worker.incarnation;
      if (is_it) present_.erase(found);
      break;
    }
    case MemberEvent::Kind::kSuspected:
    case MemberEvent::Kind::kTrusted:
    case MemberEvent::Kind::kEvicted:
      break;
  }
}

void MemberPresence::note_gone(const MemberEvent& event, TimePoint now) {
  const std::string& name = event.worker.name;
  if (!gone_.insert_or_assign(name, Departure{event, now}).second) {
    gone_order_.erase(std::find(gone_order_.begin(), gone_order_.end(), name));
  }
  gone_order_.push_back(name);
  if (gone_order_.size() <= kMostGone) return;
  gone_.erase(gone_order_.front());
  gone_order_.pop_front();
}

std::optional<WorkerInfo> MemberPresence::find(std::string_view name,
                                               Incarnation other_than) const {
  const auto found = present_.find(name);
  if (found == present_.end() || found->second.incarnation == other_than) return std::nullopt;
  return found->second;
}

std::string MemberPresence::absence(const std::string& name, TimePoint now) const {
  // Only an incarnation that the caller cannot use is there and yet absent.
  if (present_.find(name) != present_.end()) {
    return absl::StrCat("worker '", name, "' does not answer, and no other one has joined");
  }
  const auto gone = gone_.find(name);
  if (gone != gone_.end()) {
    const MemberEvent& how = gone->second.how;
    const double ago = std::chrono::duration<double>(now - gone->second.when).count();
    return how.kind == MemberEvent::Kind::kLeft
               ? absl::StrFormat("worker '%s' left the job %.3g s ago, and has not come back", name,
                                 ago)
               : absl::StrFormat("worker '%s' was lost %.3g s ago, and has not come back (%s)",
                                 name, ago, how.reason);
  }
  std::vector<std::string> others;
  for (const auto& [other, worker] : present_) others.push_back(other);
  return absl::StrCat("no worker '", name,
                      "' was ever seen; others that are there: ", nearest_names_text(name, others));
}

}  // namespace sinew::internal
