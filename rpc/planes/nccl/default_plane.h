#pragma once

#include "absl/status/statusor.h"
#include "sinew/rpc/planes/make_device_plane.h"

namespace sinew::internal {

struct DefaultPlaneOptions {
  /// Messages are encrypted, and tensors may go in the clear all the same.
  bool uses_tls = false;
  bool allow_unencrypted = false;
  /// See NcclPlaneOptions.
  int max_ctas = 0;
};

/// Makes the NCCL plane of a worker; null when Sinew was built without NCCL, or this process has no
/// GPU. Such a plane has a chance only with peers that say they have one too, and live in another
/// process: within one, NCCL hands out pointers that an abort does not take back. A status says why
/// there is none although there could be one.
absl::StatusOr<MakeDevicePlane> default_device_plane(const DefaultPlaneOptions& wanted);

}  // namespace sinew::internal
