#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/rpc/device/layer/device_layer.h"

namespace sinew::internal {

/// Tensors of one message that is written, of one device and stream, for one device.
struct DeviceLayer::Group {
  c10::Device to;
  c10::Stream stream;
  std::vector<at::Tensor> tensors;
};

/// What the sender of a message that is read has offered.
struct DeviceLayer::Incoming {
  std::uint64_t ticket = 0;
  std::uint64_t kept = 0;
  c10::Device to = c10::kCPU;
  // By position; undefined until they are read.
  std::vector<at::Tensor> tensors;
  std::vector<bool> checked;
};

/// What is kept with one message, by its writer or reader.
struct DeviceLayer::Part final : MessageRoute::DevicePart {
  explicit Part(std::weak_ptr<DeviceLayer> device_layer, WorkerInfo message_peer)
      : layer(std::move(device_layer)), peer(std::move(message_peer)) {}
  // What is left was not read.
  ~Part() override;

  bool has_transfers() const override { return !groups.empty(); }
  bool can_return(c10::Device device) const override { return results.find(device).has_value(); }
  void accept_transfers(MessageRoute& route) override;

  const std::weak_ptr<DeviceLayer> layer;
  const WorkerInfo peer;
  // Writing.
  std::vector<Group> groups;
  // Reading a call: from this worker's devices to the caller's.
  DeviceMap results;
  // Reading.
  std::vector<Incoming> incoming;
  std::size_t incoming_bytes = 0;
};

/// Tensors that are on their way to a message which was read.
struct DeviceLayer::Arrival {
  WorkerInfo peer;
  std::uint64_t kept = 0;
  std::vector<at::Tensor> tensors;
  c10::Stream stream;
  Clock::TimePoint deadline;
  Promise<void> promise;
  Timers::TimerId timer = 0;
};

}  // namespace sinew::internal
