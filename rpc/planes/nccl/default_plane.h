#pragma once

#include "sinew/rpc/planes/make_device_plane.h"

namespace sinew::internal {

/// Makes the NCCL plane of a worker; null when Sinew was built without NCCL, or this process has no
/// GPU. Such a plane has a chance only with peers that say they have one too.
MakeDevicePlane default_device_plane();

}  // namespace sinew::internal
