#include "sinew/rpc/device_map.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew {
namespace {

[[noreturn]] void refuse(const std::string& problem) {
  throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat("DeviceMap: ", problem));
}

c10::Device parse(const std::string& text) {
  try {
    return c10::Device(text);
  } catch (const c10::Error&) {
    refuse(absl::StrCat("'", internal::printable(text, 64),
                        "' names no device; write \"cuda:0\" or \"cpu\""));
  }
}

// Host memory has no index.
c10::Device checked(c10::Device device) {
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  if (!device.has_index()) {
    refuse(absl::StrCat("'", device.str(), "' names no device: it needs an index, as in '",
                        device.str(), ":0'"));
  }
  return device;
}

c10::Device cuda(int index) {
  if (index < 0 || index > 127) {
    refuse(absl::StrCat("there is no CUDA device with index ", index));
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace

DeviceMap::DeviceMap(std::initializer_list<std::pair<int, int>> cuda_devices) {
  for (const auto& [here, there] : cuda_devices) map(here, there);
}

DeviceMap& DeviceMap::map(c10::Device here, c10::Device there) {
  here = checked(here);
  there = checked(there);
  if (const auto other = find(here)) {
    refuse(absl::StrCat("'", here.str(), "' is mapped to '", other->str(),
                        "' already and cannot be mapped to '", there.str(), "' too"));
  }
  pairs_.emplace_back(here, there);
  return *this;
}

DeviceMap& DeviceMap::map(const std::string& here, const std::string& there) {
  return map(parse(here), parse(there));
}

DeviceMap& DeviceMap::map(int here, int there) { return map(cuda(here), cuda(there)); }

std::optional<c10::Device> DeviceMap::find(c10::Device here) const {
  for (const auto& [from, to] : pairs_) {
    if (from == here) return to;
  }
  return std::nullopt;
}

DeviceMap DeviceMap::reversed() const {
  DeviceMap reversed;
  for (const auto& [from, to] : pairs_) {
    if (!reversed.find(to).has_value()) reversed.pairs_.emplace_back(to, from);
  }
  return reversed;
}

std::string DeviceMap::text() const {
  return absl::StrJoin(pairs_, ", ", [](std::string* out, const Pair& pair) {
    absl::StrAppend(out, pair.first.str(), " -> ", pair.second.str());
  });
}

}  // namespace sinew
