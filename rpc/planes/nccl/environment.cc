#include "sinew/rpc/planes/nccl/environment.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

std::string text_of(int version) {
  // Since 2.9: two digits each. Older ones have one for the minor number.
  const int scale = version >= 10000 ? 10000 : 1000;
  return absl::StrCat(version / scale, ".", version % scale / 100, ".", version % 100);
}

}  // namespace

absl::Status check_nccl_environment(int version,
                                    const std::function<const char*(const char*)>& variable) {
  if (version < kMinNcclVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("it needs NCCL 2.27 or newer, and this process has ", text_of(version)));
  }
  const auto is_set = [&variable](const char* name) {
    const char* value = variable(name);
    return value != nullptr && *value != '\0';
  };
  const auto refuse = [](const char* name, const char* why) {
    return absl::FailedPreconditionError(absl::StrCat("the environment variable ", name, " ", why));
  };
  if (is_set("NCCL_COMM_ID")) {
    return refuse("NCCL_COMM_ID", "gives all communicators of the process the same id");
  }
  if (is_set("NCCL_COMM_BLOCKING") && std::string(variable("NCCL_COMM_BLOCKING")) != "0") {
    return refuse("NCCL_COMM_BLOCKING", "makes calls of NCCL wait for peers");
  }
  if (is_set("NCCL_LAUNCH_ORDER_IMPLICIT") &&
      std::string(variable("NCCL_LAUNCH_ORDER_IMPLICIT")) != "0") {
    return refuse("NCCL_LAUNCH_ORDER_IMPLICIT",
                  "makes kernels of one communicator wait for those of others");
  }
  return absl::OkStatus();
}

absl::Status check_nccl_beside_tls(bool uses_tls, bool allow_unencrypted) {
  if (!uses_tls || allow_unencrypted) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "NCCL sends tensors in the clear, and the credentials use TLS: set "
      "WorkerOptions::nccl_allow_unencrypted if the network between the GPUs is trusted");
}

}  // namespace sinew::internal
