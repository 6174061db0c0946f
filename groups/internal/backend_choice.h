#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "sinew/groups/internal/backend.h"

namespace sinew::internal {

/// The name of a group's backend by kind of device.
using BackendChoice = std::map<c10::DeviceType, std::string>;

/// Understands GroupOptions::backend. kInvalidArgument with a text that names the part that is
/// wrong.
absl::StatusOr<BackendChoice> parse_backends(std::string_view text);
/// "cpu:gloo,cuda:nccl"
std::string backends_text(const BackendChoice& choice);
/// MPI places processes and connects them by itself.
bool is_mpi_alone(const BackendChoice& choice);

/// Starts them all; one of two devices serves both if it can. Throws RpcError.
std::map<c10::DeviceType, std::shared_ptr<Backend>> make_backends(const BackendChoice& choice,
                                                                  const BackendRequest& request);

}  // namespace sinew::internal
