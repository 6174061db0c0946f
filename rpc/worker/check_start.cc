#include "sinew/rpc/worker/check_start.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/job_token.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/process_room.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/worker/max_poll.h"
#include "sinew/rpc/worker/thread_plan.h"

namespace sinew::internal {
namespace {

void check_not_negative(std::chrono::nanoseconds value, const char* option) {
  if (value >= std::chrono::nanoseconds(0)) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("WorkerOptions::%s must not be negative, it is %d ns", option,
                                 value.count()));
}

// Those that it starts with, and some for the first connections.
constexpr std::size_t kFilesWithGrpc = 12;

// A message of gRPC is less than 2 GiB, and the limit of all messages is above this one.
constexpr std::size_t kMaxClientRequestBytes = std::size_t{1} << 30;

void check_room(const WorkerOptions& options) {
  const bool is_alone = absl::StartsWith(options.init_method, "inproc:");
  // gRPC ends the process, or does not go on, where it cannot start a thread.
  absl::Status room = check_room_for_threads(threads_at_start(options));
  if (room.ok() && !is_alone) room = check_room_for_files(kFilesWithGrpc);
  if (!room.ok()) throw_error(room);
}

void check_options(const WorkerOptions& options) {
  if (absl::Status valid = validate_worker_name(options.name); !valid.ok()) throw_error(valid);
  if (!options.job_token.empty()) {
    const absl::Status is_one = check_job_token(options.job_token, "WorkerOptions::job_token");
    if (!is_one.ok()) throw_error(is_one);
  }
  check_positive(options.join_timeout, "join_timeout");
  check_positive(options.default_timeout, "default_timeout");
  check_positive(options.lease, "lease");
  check_not_negative(options.heartbeat_interval, "heartbeat_interval");
  check_not_negative(options.max_poll, "max_poll");
  if (const auto max_poll = max_poll_of(options); !max_poll.ok()) throw_error(max_poll.status());
  if (options.heartbeat_interval > options.lease / 3) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "WorkerOptions::lease must be at least three times heartbeat_interval, or one "
                   "lost beat would end it");
  }
  if (options.nccl_max_ctas < 0) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("WorkerOptions::nccl_max_ctas must not be negative, it is %d",
                                   options.nccl_max_ctas));
  }
  if (options.max_message_bytes == 0 || options.send_window_bytes == 0 ||
      options.receive_window_bytes == 0) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "WorkerOptions::max_message_bytes, send_window_bytes and receive_window_bytes "
                   "must be positive");
  }
  if (options.max_client_request_bytes == 0 ||
      options.max_client_request_bytes > kMaxClientRequestBytes) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("WorkerOptions::max_client_request_bytes must be 1 to %d, which "
                                   "is what gRPC takes, it is %d",
                                   kMaxClientRequestBytes, options.max_client_request_bytes));
  }
}

void add_environment(WorkerOptions& options) {
  const EnvironmentReader environment = process_environment();
  if (options.job_token.empty()) {
    absl::StatusOr<std::string> token = read_job_token(environment);
    if (!token.ok()) throw_error(token.status());
    options.job_token = *std::move(token);
  }
  const absl::StatusOr<bool> job_tls = switch_of(environment, "SINEW_JOB_TLS");
  if (!job_tls.ok()) throw_error(job_tls.status());
  if (*job_tls && options.credentials.loopback_only()) options.credentials = Credentials::job_tls();
  if (options.credentials.is_of_job() && options.job_token.empty()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("worker '%s' has Credentials::job_tls(), and no token: set %s, "
                                   "%s or WorkerOptions::job_token",
                                   options.name, kJobToken, kJobTokenFile));
  }
  const absl::StatusOr<bool> encrypted_only = switch_of(environment, "SINEW_ENCRYPTED_ONLY");
  if (!encrypted_only.ok()) throw_error(encrypted_only.status());
  options.encrypted_only = options.encrypted_only || *encrypted_only;
}

void check_encryption(const WorkerOptions& options) {
  if (!options.encrypted_only || absl::StartsWith(options.init_method, "inproc:")) return;
  const char* wrong = !options.credentials.uses_tls()  ? "credentials do not use TLS"
                      : options.ucx                    ? "ucx is set"
                      : options.nccl_allow_unencrypted ? "nccl_allow_unencrypted is set"
                                                       : nullptr;
  if (wrong == nullptr) return;
  throw RpcError(ErrorCode::kPermissionDenied,
                 absl::StrFormat("worker '%s' is to send nothing in the clear "
                                 "(WorkerOptions::encrypted_only or SINEW_ENCRYPTED_ONLY), and its "
                                 "%s",
                                 options.name, wrong));
}

}  // namespace

void check_positive(std::chrono::nanoseconds value, const char* option) {
  if (value > std::chrono::nanoseconds(0)) return;
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrFormat("WorkerOptions::%s must be positive, it is %d ns", option, value.count()));
}

WorkerOptions check_start(WorkerOptions options) {
  if (absl::Status may = ProcessLife::may_start_worker(); !may.ok()) throw_error(may);
  check_options(options);
  add_environment(options);
  check_encryption(options);
  check_room(options);
  return options;
}

}  // namespace sinew::internal
