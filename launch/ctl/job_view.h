#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/operator.pb.h"
#include "sinew/rpc/transport/grpc/client/unary_client.h"

namespace sinew::internal {

/// One member of a job, and what it says of itself.
struct WorkerView {
  std::string name;
  int rank = -1;
  std::string address;
  /// Why it has said nothing.
  absl::Status answered;
  proto::WorkerState state;
};

/// All members, by rank, as the worker that was asked first has them.
using JobView = std::vector<WorkerView>;

/// "runs", "waits for a thread", ...
const char* state_text(proto::ServedCall::State state);

/// Whom to ask, and as whom.
struct JobAccess {
  std::string address;
  std::string worker_name;
  UnaryClientOptions client;
  std::chrono::nanoseconds patience = std::chrono::seconds(2);
};

/// Asks the worker at the address, and then all others that it knows, for these lists of
/// WorkerState. Fails only if the first one does not answer.
absl::StatusOr<JobView> ask_job(const JobAccess& access, const std::vector<std::string>& wanted);

/// What each member did last, by name: lines of its flight recorder, oldest first. As ask_job().
struct WorkerEvents {
  std::string name;
  absl::Status answered;
  std::vector<std::string> lines;
};
absl::StatusOr<std::vector<WorkerEvents>> ask_events(const JobAccess& access, std::uint64_t most);

/// Has a worker cancel a call; false: it serves none of that caller and number.
absl::StatusOr<bool> ask_cancel(const JobAccess& access, const std::string& caller,
                                std::uint64_t id);
/// Asks a worker to end; false: its program does not wait for that.
absl::StatusOr<bool> ask_stop(const JobAccess& access);

}  // namespace sinew::internal
