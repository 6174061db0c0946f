#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/core/Stream.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/message_devices.h"
#include "sinew/rpc/device_map.h"
#include "sinew/rpc/planes/device_plane.h"
#include "sinew/rpc/planes/make_device_plane.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

/// The road of tensors that live on devices: which device of a peer they arrive on (the maps of
/// both sides), and how. Large ones are offered to the plane when both workers have one; otherwise,
/// and when the plane fails, their bytes go through host memory with the messages of the worker.
/// Thread-safe.
class DeviceLayer final : public Extension,
                          public MessageDevices,
                          public DeviceRoad,
                          public std::enable_shared_from_this<DeviceLayer> {
 public:
  /// Smaller tensors do not pay the messages that a transfer takes.
  static constexpr std::size_t kMinTransferBytes = 16384;

  /// `make_plane` is empty when the worker is to have no plane.
  static std::shared_ptr<DeviceLayer> make(WorkerServices& services,
                                           std::vector<c10::Device> usable,
                                           MakeDevicePlane make_plane);
  ~DeviceLayer() override;

  /// Makes the plane, if the worker is to have one. When the worker has its rank, before calls.
  void start_plane();
  /// Whether start_plane() will make one.
  bool has_plane() const { return make_plane_ != nullptr; }
  const std::vector<c10::Device>& usable() const { return usable_; }

  // --- MessageDevices
  std::shared_ptr<DeviceRoad> road() override { return shared_from_this(); }
  std::vector<c10::Stream> streams_of_results(const WorkerInfo& peer) const override;
  std::string offer_transfers(MessageRoute& route) override;

  // --- DeviceRoad
  c10::Device target(MessageRoute& route, c10::Device device) override;
  bool take(MessageRoute& route, const at::Tensor& dense, c10::Device target,
            proto::DeviceSlot& slot) override;
  void check_device(c10::Device device) override;
  void check_size(MessageRoute& route, const proto::DeviceSlot& slot,
                  std::size_t size_bytes) override;
  void receive(MessageRoute& route, const proto::DeviceSlot& slot,
               const at::Tensor& dense) override;

  // --- Extension
  std::string_view layer() const override { return kLayer; }
  void on_note(const WorkerInfo& from, std::string body) override;
  void on_worker_fenced(const WorkerInfo& worker) override;
  void on_worker_lost(const WorkerInfo&) override {}
  void add_counters(Counters& counters) const override;
  void on_receive(MessageRoute& route, MessageKind kind, const std::string& attachment) override;
  std::vector<Method> methods() const override;
  Future<std::vector<std::string>> drain_async(DrainScope scope,
                                               Clock::TimePoint deadline) override;
  void stop() override;

  /// For the method by which a peer asks for the bytes of tensors that the plane did not bring.
  std::vector<at::Tensor> staged(const WorkerInfo& peer, std::uint64_t kept);

 private:
  struct Part;
  struct Group;
  struct Incoming;
  struct Arrival;
  /// Tensors that were offered.
  struct Kept {
    WorkerInfo peer;
    // 0 until the plane has given it.
    std::uint64_t ticket = 0;
    std::shared_ptr<const std::vector<at::Tensor>> tensors;
    c10::Stream stream;
    // A reply's are kept when the plane has failed; a call's until it is answered.
    bool of_reply = false;
    bool ended = false;
  };
  struct Offered {
    std::uint64_t kept = 0;
    std::uint64_t ticket = 0;
  };
  struct Drain {
    Promise<std::vector<std::string>> promise;
    DrainScope scope;
  };

  DeviceLayer(WorkerServices& services, std::vector<c10::Device> usable,
              MakeDevicePlane make_plane);
  static Part* part_of(const MessageRoute& route);
  Part& make_part(MessageRoute& route);
  const DeviceMap* map_for(const WorkerInfo& peer) const;
  /// Null when there is none, or it was stopped.
  DevicePlane* plane() const;

  Offered offer(MessageRoute& route, Group group);
  void offer_ended(std::uint64_t kept, const absl::Status& status);
  void message_ended(std::uint64_t kept, CarrierEnd how);
  void forget(std::uint64_t kept);

  void begin_arrival(MessageRoute& route, Incoming incoming);
  void watch_deadline(const std::shared_ptr<Arrival>& arrival);
  void plane_ended(const std::shared_ptr<Arrival>& arrival, const absl::Status& status);
  void fetch(const std::shared_ptr<Arrival>& arrival, const absl::Status& why);
  static void fill(const Arrival& arrival, const std::vector<at::Tensor>& bytes);
  void end_arrival(const std::shared_ptr<Arrival>& arrival, std::exception_ptr error);
  void finish_arrival(const std::shared_ptr<Arrival>& arrival, std::exception_ptr error);
  bool is_drained_locked(DrainScope scope) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void finish_drains();

  WorkerServices& services_;
  const std::string self_name_;
  const std::map<std::string, DeviceMap> maps_;
  const std::vector<c10::Device> usable_;
  const std::size_t max_message_bytes_;
  const MakeDevicePlane make_plane_;
  // Constant after start_plane().
  std::unique_ptr<DevicePlane> plane_;

  mutable Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_kept_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<std::uint64_t, Kept> kept_ ABSL_GUARDED_BY(mutex_);
  // Offers that the plane has not ended, and tensors that messages wait for.
  std::int64_t open_offers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t arriving_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t transfers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t fetches_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Drain> drains_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
