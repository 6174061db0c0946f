#include "sinew/testing/message.h"

namespace sinew::testing {

std::ostream& operator<<(std::ostream& out, CallKind kind) {
  switch (kind) {
    case CallKind::kCall:
      return out << "call";
    case CallKind::kRemote:
      return out << "remote";
    case CallKind::kToHere:
      return out << "to_here";
    case CallKind::kBackward:
      return out << "backward";
    case CallKind::kOther:
      return out << "other";
  }
  return out << "CallKind " << static_cast<int>(kind);
}

std::ostream& operator<<(std::ostream& out, const Message& message) {
  out << (message.leg == Leg::kCall ? "call of " : "reply of ") << message.method;
  if (message.kind != CallKind::kCall) out << " (" << message.kind << ")";
  return out << " from '" << message.from() << "' to '" << message.to() << "'";
}

}  // namespace sinew::testing
