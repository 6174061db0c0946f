#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/planes/device_plane.h"

namespace sinew::internal {

/// What a worker gives to its plane. The functions work until DevicePlane::stop() has returned.
struct DevicePlaneContext {
  WorkerInfo self;
  /// Sends a message to the plane of `to` over the link of the two workers: it comes once, in the
  /// order of sending, unless the link ends before. `on_end` runs once, on any thread, when the
  /// other plane has handled it, or it got lost. Does not block; any thread.
  std::function<void(const WorkerInfo& to, std::string message, std::function<void()> on_end)> send;
  /// Whether `peer` has said that it has a plane. Does not block.
  std::function<bool(const WorkerInfo& peer)> peer_has_plane;
  /// A line of the worker's log.
  std::function<void(const std::string& text)> log;
};

using MakeDevicePlane = std::function<std::unique_ptr<DevicePlane>(DevicePlaneContext context)>;

}  // namespace sinew::internal
