#pragma once

#include <string>

#include "sinew/testing/messages.h"

namespace sinew::internal {

/// A call on its way to its callee, or the answer on its way back.
struct CallMessage {
  testing::Messages::Leg leg = testing::Messages::Leg::kCall;
  testing::CallKind kind = testing::CallKind::kCall;
  std::string method;
  /// Empty: a client that is no worker.
  std::string caller;
  std::string callee;
};

}  // namespace sinew::internal
