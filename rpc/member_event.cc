#include "sinew/rpc/member_event.h"

#include <utility>

#include "sinew/rpc/worker/member_events.h"

namespace sinew {

std::ostream& operator<<(std::ostream& out, MemberEvent::Kind kind) {
  switch (kind) {
    case MemberEvent::Kind::kJoined:
      return out << "joined";
    case MemberEvent::Kind::kSuspected:
      return out << "suspected";
    case MemberEvent::Kind::kTrusted:
      return out << "trusted";
    case MemberEvent::Kind::kLost:
      return out << "lost";
    case MemberEvent::Kind::kLeft:
      return out << "left";
    case MemberEvent::Kind::kEvicted:
      return out << "evicted";
  }
  return out << "unknown";
}

MemberWatch& MemberWatch::operator=(MemberWatch&& other) noexcept {
  if (this == &other) return *this;
  end();
  subscription_ = std::move(other.subscription_);
  return *this;
}

void MemberWatch::end() {
  const auto subscription = std::move(subscription_);
  if (subscription != nullptr) subscription->end();
}

}  // namespace sinew
