#pragma once

#include "absl/status/statusor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/store.pb.h"

namespace sinew::internal {

/// A kind of store. Thread-safe.
class StoreBackend {
 public:
  virtual ~StoreBackend() = default;

  /// Does what is asked, and blocks until it is done or, with kDeadlineExceeded, until `deadline`.
  /// `request` is within Store's limits; its timeout_ms is of no interest. The reply has code 0.
  virtual absl::StatusOr<proto::StoreReply> call(proto::StoreRequest request,
                                                 Clock::TimePoint deadline) = 0;

  /// Of a TCP store.
  virtual int port() const { return 0; }
};

}  // namespace sinew::internal
