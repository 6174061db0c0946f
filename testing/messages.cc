#include "sinew/testing/messages.h"

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/testing/internal/call_message.h"

namespace sinew::testing {
namespace {

std::uint64_t checked_count(const char* function, int count) {
  if (count >= 0) return static_cast<std::uint64_t>(count);
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrCat("Messages::", function, "() takes a number of messages, not ", count));
}

}  // namespace

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

Messages& Messages::after(int count) {
  skip_ = checked_count("after", count);
  return *this;
}

Messages& Messages::first(int count) {
  limit_ = checked_count("first", count);
  return *this;
}

Messages& Messages::at_random(double probability, std::uint64_t seed) {
  if (!(probability >= 0 && probability <= 1)) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrCat("Messages::at_random() takes a probability from 0 to 1, not ", probability));
  }
  probability_ = probability;
  seed_ = seed;
  return *this;
}

bool Messages::includes(const internal::CallMessage& message) const {
  return message.leg == leg_ && (!method_ || *method_ == message.method) &&
         (!callee_ || *callee_ == message.callee) && (!caller_ || *caller_ == message.caller) &&
         (!kind_ || *kind_ == message.kind);
}

}  // namespace sinew::testing
