#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c10/core/Device.h"

namespace sinew {

/// Says for one peer where the tensors of this worker's devices arrive there. Results, and
/// gradients, take the same way back. Host memory goes to host memory unless the map says
/// otherwise; for other devices there is no default.
///
///     options.device_maps["server"] = sinew::DeviceMap({{0, 1}, {1, 0}});
///     options.device_maps["server"] = sinew::DeviceMap().map("cpu", "cuda:0");
///
/// A value type.
class DeviceMap {
 public:
  using Pair = std::pair<c10::Device, c10::Device>;

  DeviceMap() = default;
  /// Indexes of CUDA devices: here, there. Throws as map().
  DeviceMap(std::initializer_list<std::pair<int, int>> cuda_devices);

  /// Adds an entry. Throws RpcError kInvalidArgument for a device without an index or with a
  /// negative one, and when `here` is in the map already.
  DeviceMap& map(c10::Device here, c10::Device there);
  DeviceMap& map(const std::string& here, const std::string& there);
  /// Of CUDA devices.
  DeviceMap& map(int here, int there);

  bool empty() const { return pairs_.empty(); }
  /// In the order in which they were added.
  const std::vector<Pair>& pairs() const { return pairs_; }
  std::optional<c10::Device> find(c10::Device here) const;
  /// From the peer's devices to those of this worker. If several go to one it takes the first.
  DeviceMap reversed() const;
  /// "cuda:0 -> cuda:1, cpu -> cuda:0"
  std::string text() const;

 private:
  std::vector<Pair> pairs_;
};

}  // namespace sinew
