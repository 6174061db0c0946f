#include "sinew/rpc/planes/nccl/nccl_plane.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/planes/nccl/internal/core.h"

namespace sinew::internal {
namespace {

class Plane final : public NcclPlane {
 public:
  explicit Plane(NcclPlaneOptions options)
      : core_(std::make_shared<nccl::Core>(std::move(options))) {
    core_->start();
  }
  ~Plane() override { core_->stop(); }

  bool is_usable(const WorkerInfo& peer) const override { return core_->is_usable(peer); }
  std::uint64_t offer(const WorkerInfo& peer, int to_device, std::vector<DeviceBuffer> buffers,
                      OnEnd on_end) override {
    return core_->offer(peer, to_device, std::move(buffers), std::move(on_end));
  }
  void withdraw(const WorkerInfo& peer, std::uint64_t ticket) override {
    core_->withdraw(peer, ticket);
  }
  void accept(const WorkerInfo& peer, std::uint64_t ticket, std::vector<DeviceBuffer> buffers,
              OnEnd on_end) override {
    core_->accept(peer, ticket, std::move(buffers), std::move(on_end));
  }
  void decline(const WorkerInfo& peer, std::uint64_t ticket) override {
    core_->decline(peer, ticket);
  }
  void on_message(const WorkerInfo& peer, const std::string& message) override {
    core_->on_message(peer, message);
  }
  void on_peer_lost(const WorkerInfo& peer) override { core_->on_peer_lost(peer); }
  void stop() override { core_->stop(); }
  NcclCounters counters() const override { return core_->counters(); }
  void add_counters(std::map<std::string, std::int64_t>& counters) const override {
    const NcclCounters now = core_->counters();
    counters["nccl.transfers_sent"] = now.transfers_sent;
    counters["nccl.transfers_received"] = now.transfers_received;
    counters["nccl.bytes_sent"] = now.bytes_sent;
    counters["nccl.bytes_received"] = now.bytes_received;
    counters["nccl.failures"] = now.failures;
    counters["nccl.aborts"] = now.aborts;
    counters["nccl.threads_left_behind"] = now.threads_left_behind;
    counters["nccl.protocol_errors"] = now.protocol_errors;
    counters["nccl.communicators"] = now.communicators;
  }

 private:
  const std::shared_ptr<nccl::Core> core_;
};

}  // namespace

std::unique_ptr<NcclPlane> make_nccl_plane(NcclPlaneOptions options) {
  return std::make_unique<Plane>(std::move(options));
}

}  // namespace sinew::internal
