#pragma once

#include <string>
#include <string_view>

#include "sinew/rpc/worker.h"

namespace sinew {

/// A device of another worker, e.g. where a RemoteModule is made.
struct RemoteDevice {
  /// From `worker`, `worker/device`, `rank:2` or `rank:2/device`; without a device it is the CPU.
  /// Throws RpcError kInvalidArgument for a text that is none, kNotFound for a worker that is none.
  RemoteDevice(const Worker& worker, std::string_view where);
  /// As seen from current_worker().
  RemoteDevice(const std::string& where);
  RemoteDevice(const char* where);
  /// The device is one as LibTorch writes it: "cpu", "cuda:0".
  RemoteDevice(Peer at, std::string on = "cpu");

  Peer peer;
  std::string device;
};

}  // namespace sinew
