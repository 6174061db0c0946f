#include "sinew/rpc/device/layer/device_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/device/device_runtime.h"

namespace sinew::internal {
namespace {

bool contains(const std::vector<c10::Device>& devices, c10::Device device) {
  return device.is_cpu() || std::find(devices.begin(), devices.end(), device) != devices.end();
}

std::string list_text(const std::vector<c10::Device>& devices) {
  if (devices.empty()) return "none but host memory";
  return absl::StrJoin(devices, ", ", [](std::string* out, const c10::Device& device) {
    absl::StrAppend(out, device.str());
  });
}

std::vector<c10::Device> existing_devices() {
  std::vector<c10::Device> devices;
  for (const auto& runtime : device_runtimes()) {
    for (int i = 0; i < runtime->device_count(); ++i) {
      devices.emplace_back(runtime->type(), static_cast<c10::DeviceIndex>(i));
    }
  }
  return devices;
}

[[noreturn]] void refuse_options(const std::string& problem) {
  throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat("WorkerOptions::", problem));
}

void check_here(const std::string& peer, const DeviceMap& map,
                const std::vector<c10::Device>& usable) {
  const auto& pairs = map.pairs();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [here, there] = pairs[i];
    if (!contains(usable, here)) {
      refuse_options(absl::StrCat("device_maps[\"", peer, "\"] maps ", here.str(),
                                  ", which this worker does not have or use: its devices are ",
                                  list_text(usable)));
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (pairs[k].second != there) continue;
      refuse_options(absl::StrCat("device_maps[\"", peer, "\"] maps ", pairs[k].first.str(),
                                  " and ", here.str(), " to the same ", there.str(),
                                  ": results would not know where to go"));
    }
  }
}

}  // namespace

std::vector<c10::Device> usable_devices(const WorkerOptions& options) {
  const std::vector<c10::Device> existing = existing_devices();
  std::vector<c10::Device> usable;
  for (const c10::Device device : options.devices) {
    if (device.is_cpu() || contains(usable, device)) continue;
    if (!contains(existing, device)) {
      refuse_options(absl::StrCat("devices names ", device.str(),
                                  ", which this worker does not have: its devices are ",
                                  list_text(existing)));
    }
    usable.push_back(device);
  }
  if (options.devices.empty()) usable = existing;
  for (const auto& [peer, map] : options.device_maps) check_here(peer, map, usable);
  return usable;
}

absl::Status check_device_map(const WorkerOptions& options, const Member& member) {
  const auto map = options.device_maps.find(member.worker.name);
  if (map == options.device_maps.end() || !member.devices.has_value()) return absl::OkStatus();
  for (const auto& [here, there] : map->second.pairs()) {
    if (contains(*member.devices, there)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "WorkerOptions::device_maps[\"", member.worker.name, "\"] of worker '", options.name,
        "' maps ", here.str(), " to ", there.str(), ", which worker '", member.worker.name,
        "' does not have or use: its devices are ", list_text(*member.devices)));
  }
  return absl::OkStatus();
}

absl::Status check_device_maps(const WorkerOptions& options, const std::vector<Member>& members,
                               World world) {
  for (const Member& member : members) {
    if (const absl::Status fits = check_device_map(options, member); !fits.ok()) return fits;
  }
  if (world == World::kOpen) return absl::OkStatus();
  for (const auto& [name, map] : options.device_maps) {
    const bool known = std::any_of(
        members.begin(), members.end(),
        [&wanted = name](const Member& member) { return member.worker.name == wanted; });
    if (known) continue;
    const auto names = absl::StrJoin(members, ", ", [](std::string* out, const Member& member) {
      absl::StrAppend(out, "'", member.worker.name, "'");
    });
    return absl::InvalidArgumentError(
        absl::StrCat("WorkerOptions::device_maps names '", printable(name, 128),
                     "', which is no worker of the job: there are ", names));
  }
  return absl::OkStatus();
}

}  // namespace sinew::internal
