#pragma once

#include <vector>

#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

/// The devices that messages may use at a worker with these options. Checks the options as far as
/// they concern this worker alone: throws RpcError kInvalidArgument that names the device.
std::vector<c10::Device> usable_devices(const WorkerOptions& options);

/// Whether `member` has what the map for it (if there is one) names. Otherwise kInvalidArgument.
absl::Status check_device_map(const WorkerOptions& options, const Member& member);

enum class World { kOpen, kFixed };
/// The same for all members. A map for a name without a member is an error in a fixed world.
absl::Status check_device_maps(const WorkerOptions& options, const std::vector<Member>& members,
                               World world);

}  // namespace sinew::internal
