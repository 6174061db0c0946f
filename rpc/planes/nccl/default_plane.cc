#include "sinew/rpc/planes/nccl/default_plane.h"

#include <cstdlib>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/nccl/environment.h"
#include "sinew/rpc/planes/nccl/nccl_plane.h"

namespace sinew::internal {

#ifdef SINEW_WITH_NCCL
namespace {

// The workers of this process that have a plane, or had one.
class Neighbours {
 public:
  void add(Incarnation worker) {
    MutexLock lock(mutex_);
    workers_.insert(worker);
  }
  bool has(Incarnation worker) const {
    MutexLock lock(mutex_);
    return workers_.count(worker) != 0;
  }

 private:
  mutable Mutex mutex_;
  std::set<Incarnation> workers_ ABSL_GUARDED_BY(mutex_);
};

Neighbours& neighbours() {
  static auto* const all = new Neighbours();
  return *all;
}

}  // namespace

absl::StatusOr<MakeDevicePlane> default_device_plane(const DefaultPlaneOptions& wanted) {
  std::shared_ptr<DeviceApi> devices = make_cuda_api();
  if (devices->device_count() <= 0) return MakeDevicePlane();
  std::shared_ptr<NcclApi> nccl = make_nccl_api();
  absl::Status fits = check_nccl_environment(nccl->version(), &std::getenv);
  if (fits.ok()) fits = check_nccl_beside_tls(wanted.uses_tls, wanted.allow_unencrypted);
  if (!fits.ok()) return fits;
  return [devices = std::move(devices), nccl = std::move(nccl),
          max_ctas = wanted.max_ctas](DevicePlaneContext context) -> std::unique_ptr<DevicePlane> {
    NcclPlaneOptions options;
    options.self = std::move(context.self);
    options.nccl = nccl;
    options.device = devices;
    options.send = std::move(context.send);
    options.peer_has_plane = [has_plane =
                                  std::move(context.peer_has_plane)](const WorkerInfo& peer) {
      return !neighbours().has(peer.incarnation) && has_plane(peer);
    };
    options.log = std::move(context.log);
    options.max_ctas = max_ctas;
    neighbours().add(options.self.incarnation);
    return make_nccl_plane(std::move(options));
  };
}
#else
absl::StatusOr<MakeDevicePlane> default_device_plane(const DefaultPlaneOptions&) {
  return MakeDevicePlane();
}
#endif

}  // namespace sinew::internal
