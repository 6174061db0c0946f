#include "sinew/tests/process/churn_tally.h"

#include <iostream>
#include <set>

#include "absl/strings/str_cat.h"

namespace churn {
namespace {

/// The other one may have gone, or this one may be out; with whatever was shared.
bool is_explained_by_a_loss(const sinew::RpcError& error) {
  // A handler at one that is out was still at work when its program shut it down.
  const bool shut_down = error.code() == sinew::ErrorCode::kFailedPrecondition &&
                         error.message().find("was shut down") != std::string::npos;
  static const std::set<sinew::ErrorCode> explained = {
      sinew::ErrorCode::kUnavailable, sinew::ErrorCode::kAborted, sinew::ErrorCode::kNotFound,
      sinew::ErrorCode::kDeadlineExceeded, sinew::ErrorCode::kCancelled};
  return shut_down || explained.count(error.code()) > 0;
}

}  // namespace

void tell(const std::string& event) {
  std::string line = "event " + event;
  for (char& c : line) c = c == '\n' ? ' ' : c;
  // In one piece: several threads write.
  std::cout << (line + "\n") << std::flush;
}

void Tally::wrong(const std::string& what) { tell("wrong " + what); }

void Tally::failed(const sinew::RpcError& error, const std::string& what) {
  const std::string code = absl::StatusCodeToString(error.code());
  if (!is_explained_by_a_loss(error)) {
    tell(absl::StrCat("unexplained ", code, " ", what, ": ", error.message()));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ++errors_[code];
}

std::string Tally::text() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = absl::StrCat("right=", right_.load());
  for (const auto& [code, times] : errors_) absl::StrAppend(&text, " ", code, "=", times);
  return text;
}

}  // namespace churn
