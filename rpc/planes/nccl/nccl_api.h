#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sinew::internal {

/// How far a call to a non-blocking communicator is.
enum class NcclProgress { kDone, kInProgress };

/// The calls of NCCL that the plane makes, for communicators of two ranks that do not block.
/// Except for abort(), all calls for a communicator come from one thread, which is bound to the
/// communicator's device. While one is in progress no other follows, except for progress().
class NcclApi {
 public:
  /// ncclComm_t.
  using Comm = void*;
  static constexpr std::size_t kIdBytes = 128;

  struct Initialised {
    /// May be null if `status` is not OK; to be aborted otherwise.
    Comm comm = nullptr;
    absl::Status status;
  };

  virtual ~NcclApi() = default;
  /// As ncclGetVersion says, e.g. 21805.
  virtual int version() const = 0;
  virtual absl::StatusOr<std::string> get_unique_id() = 0;
  /// Begins to join the communicator of `id`; progress() tells when that is done. `max_ctas`: the
  /// most blocks of threads that one of its kernels has; 0: as NCCL decides.
  virtual Initialised init_rank(const std::string& id, int rank, int max_ctas) = 0;
  /// The state of the last call for `comm`, or an error that has occurred since.
  virtual absl::StatusOr<NcclProgress> progress(Comm comm) = 0;
  virtual absl::Status group_start() = 0;
  /// Between group_start() and group_end(), to and from the other rank.
  virtual absl::Status send(Comm comm, const void* data, std::size_t size_bytes, void* stream) = 0;
  virtual absl::Status recv(Comm comm, void* data, std::size_t size_bytes, void* stream) = 0;
  virtual absl::StatusOr<NcclProgress> group_end() = 0;
  /// Ends the communicator and all that it does on its device; afterwards no call may use it. From
  /// any thread. Its kernels leave their stream soon, but the call waits for all that the process
  /// has queued on the device, or without end.
  virtual absl::Status abort(Comm comm) = 0;
};

/// The calls of the CUDA runtime that the plane makes. Thread-safe. Leaves the calling thread's
/// current device as it was, except for bind_thread(). Every thread of the plane calls
/// bind_thread() or leave_captures_alone() first: otherwise what it does (streams, all of NCCL)
/// would invalidate a CUDA graph that another thread of the process captures. What concerns events
/// is harmless on any thread.
class DeviceApi {
 public:
  /// cudaStream_t.
  using Stream = void*;
  /// cudaEvent_t.
  using Event = void*;

  virtual ~DeviceApi() = default;
  virtual int device_count() const = 0;
  /// Makes `device` the current one of the calling thread.
  virtual absl::Status bind_thread(int device) = 0;
  /// What else bind_thread() does.
  virtual absl::Status leave_captures_alone() = 0;
  /// One that does not wait for the default stream.
  virtual absl::StatusOr<Stream> create_stream(int device) = 0;
  virtual void destroy_stream(int device, Stream stream) = 0;
  virtual absl::StatusOr<Event> create_event(int device) = 0;
  virtual void destroy_event(Event event) = 0;
  /// kFailedPrecondition if the stream captures a graph.
  virtual absl::Status record(Event event, int device, Stream stream) = 0;
  virtual absl::StatusOr<bool> is_done(Event event) = 0;
};

#ifdef SINEW_WITH_NCCL
/// The libraries themselves.
std::shared_ptr<NcclApi> make_nccl_api();
std::shared_ptr<DeviceApi> make_cuda_api();
#endif

}  // namespace sinew::internal
