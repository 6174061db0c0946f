#include "sinew/testing/messages.h"

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew::testing {
namespace {

std::uint64_t checked_count(const char* function, int count) {
  if (count >= 0) return static_cast<std::uint64_t>(count);
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrCat("Messages::", function, "() takes a number of messages, not ", count));
}

}  // namespace

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

bool Messages::includes(const Message& message) const {
  return message.leg == leg_ && (!method_ || *method_ == message.method) &&
         (!callee_ || *callee_ == message.callee) && (!caller_ || *caller_ == message.caller) &&
         (!kind_ || *kind_ == message.kind) && (!number_ || *number_ == message.number);
}

std::ostream& operator<<(std::ostream& out, const Messages& messages) {
  out << (messages.leg_ == Leg::kCall ? "calls" : "replies");
  if (messages.method_) out << " of " << *messages.method_;
  if (messages.kind_) out << " (" << *messages.kind_ << ")";
  if (messages.caller_) out << " by '" << *messages.caller_ << "'";
  if (messages.callee_) out << " at '" << *messages.callee_ << "'";
  if (messages.number_) out << " with number " << *messages.number_;
  if (messages.skip_ > 0) out << ", after " << messages.skip_;
  if (messages.probability_ < 1) out << ", at random " << messages.probability_;
  return out;
}

}  // namespace sinew::testing
