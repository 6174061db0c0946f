#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/membership/file_rendezvous.h"

namespace sinew::internal {

/// The operations of a FileRendezvous, for those who must not wait for them. They run one at a
/// time, in the order in which they are asked for. The functions do not block; each callback runs
/// once, where the implementation says. Thread-safe.
class RendezvousFile {
 public:
  using OnRead = absl::AnyInvocable<void(absl::StatusOr<FileRendezvous::Contents>) &&>;
  using OnDone = absl::AnyInvocable<void(absl::Status) &&>;

  virtual ~RendezvousFile() = default;

  virtual void read(OnRead then) = 0;
  virtual void publish(Member self, JobInstance instance, OnDone then) = 0;
  virtual void found(Member self, FileRendezvous::Contents expected, JobInstance instance,
                     OnDone then) = 0;
  virtual void remove(WorkerInfo worker, OnDone then) = 0;
  /// Cancels what has not begun, and refuses what is asked for from here on.
  virtual void close() = 0;
  virtual const std::string& path() const = 0;
};

}  // namespace sinew::internal
