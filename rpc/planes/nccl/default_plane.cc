#include "sinew/rpc/planes/nccl/default_plane.h"

#include <utility>

#include "sinew/rpc/planes/nccl/nccl_plane.h"

namespace sinew::internal {

MakeDevicePlane default_device_plane() {
#ifdef SINEW_WITH_NCCL
  std::shared_ptr<DeviceApi> devices = make_cuda_api();
  if (devices->device_count() <= 0) return nullptr;
  return
      [devices = std::move(devices)](DevicePlaneContext context) -> std::unique_ptr<DevicePlane> {
        NcclPlaneOptions options;
        options.self = std::move(context.self);
        options.nccl = make_nccl_api();
        options.device = devices;
        options.send = std::move(context.send);
        options.peer_has_plane = std::move(context.peer_has_plane);
        options.log = std::move(context.log);
        return make_nccl_plane(std::move(options));
      };
#else
  return nullptr;
#endif
}

}  // namespace sinew::internal
