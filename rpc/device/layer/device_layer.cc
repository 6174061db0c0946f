// Maps, and what the device layer sees of messages. device_transfers.cc: what the plane carries.

#include "sinew/rpc/device/layer/device_layer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/device.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/device/device_runtime.h"
#include "sinew/rpc/device/layer/device_check.h"
#include "sinew/rpc/device/layer/device_part.h"
#include "sinew/rpc/wire/device_codec.h"

namespace sinew::internal {
namespace {

constexpr int kMostPairs = 256;
// Of all transfers of a message together, as for tensors of a message.
constexpr std::size_t kMostTensors = 65536;

[[noreturn]] void refuse(std::string problem) {
  throw RpcError(ErrorCode::kInvalidArgument, std::move(problem));
}

// Null for unknown devices.
std::shared_ptr<DeviceRuntime> runtime_outside_capture(c10::Device device) {
  auto runtime = find_device_runtime(device.type());
  if (runtime != nullptr && runtime->is_capturing(runtime->current_stream(device))) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrFormat("tensors on %s cannot be sent or received while the thread's "
                                   "current stream captures a graph: make the call before or after",
                                   device.str()));
  }
  return runtime;
}

}  // namespace

std::shared_ptr<DeviceLayer> DeviceLayer::make(WorkerServices& services,
                                               std::vector<c10::Device> usable,
                                               MakeDevicePlane make_plane) {
  return std::shared_ptr<DeviceLayer>(
      new DeviceLayer(services, std::move(usable), std::move(make_plane)));
}

DeviceLayer::DeviceLayer(WorkerServices& services, std::vector<c10::Device> usable,
                         MakeDevicePlane make_plane)
    : services_(services),
      self_name_(services.options().name),
      maps_(services.options().device_maps),
      usable_(std::move(usable)),
      max_message_bytes_(services.options().max_message_bytes),
      make_plane_(std::move(make_plane)) {}

DeviceLayer::~DeviceLayer() = default;

// ---- Parts of messages.

DeviceLayer::Part::~Part() {
  if (incoming.empty()) return;
  const std::shared_ptr<DeviceLayer> owner = layer.lock();
  if (owner == nullptr) return;
  DevicePlane* plane = owner->plane();
  if (plane == nullptr) return;
  for (const Incoming& each : incoming) plane->decline(peer, each.ticket);
}

DeviceLayer::Part* DeviceLayer::part_of(const MessageRoute& route) {
  // No other code sets it.
  return static_cast<Part*>(route.device_part());
}

DeviceLayer::Part& DeviceLayer::make_part(MessageRoute& route) {
  if (route.device_part() == nullptr) {
    route.set_device_part(std::make_unique<Part>(weak_from_this(), route.peer()));
  }
  return *part_of(route);
}

// ---- Maps.

const DeviceMap* DeviceLayer::map_for(const WorkerInfo& peer) const {
  if (maps_.empty()) return nullptr;
  const auto found = maps_.find(peer.name);
  return found == maps_.end() ? nullptr : &found->second;
}

std::vector<c10::Stream> DeviceLayer::streams_of_results(const WorkerInfo& peer) const {
  std::vector<c10::Stream> streams;
  const DeviceMap* map = map_for(peer);
  if (map == nullptr) return streams;
  for (const auto& [here, there] : map->pairs()) {
    if (here.is_cpu()) continue;
    if (const auto runtime = runtime_outside_capture(here)) {
      streams.push_back(runtime->current_stream(here));
    }
  }
  return streams;
}

c10::Device DeviceLayer::target(MessageRoute& route, c10::Device device) {
  const std::string& peer = route.peer().name;
  if (!device.is_cpu()) runtime_outside_capture(device);
  if (route.call() != nullptr) {
    const Part* call = part_of(*route.call());
    const auto found = call == nullptr ? std::nullopt : call->results.find(device);
    if (found.has_value()) return *found;
    if (device.is_cpu()) return device;
    refuse(absl::StrFormat(
        "the result has a tensor on %s of worker '%s', to which the caller has mapped none of its "
        "devices: add one to WorkerOptions::device_maps[\"%s\"] of worker '%s' (results take the "
        "reverse of the caller's map), or return tensor.cpu()",
        device.str(), self_name_, self_name_, peer));
  }
  const DeviceMap* map = map_for(route.peer());
  const auto found = map == nullptr ? std::nullopt : map->find(device);
  if (!found.has_value()) {
    if (device.is_cpu()) return device;
    refuse(
        absl::StrFormat("a tensor on %s cannot be sent to worker '%s': say on which of its devices "
                        "it arrives in WorkerOptions::device_maps[\"%s\"] of worker '%s', or pass "
                        "tensor.cpu()",
                        device.str(), peer, peer, self_name_));
  }
  if (!found->is_cpu()) {
    // In open membership this could not be checked before.
    const absl::StatusOr<Member> member = services_.directory().find(route.peer());
    const absl::Status fits =
        member.ok() ? check_device_map(services_.options(), *member) : absl::OkStatus();
    if (!fits.ok()) throw_error(fits);
  }
  return *found;
}

void DeviceLayer::check_device(c10::Device device) {
  if (std::find(usable_.begin(), usable_.end(), device) != usable_.end()) return;
  refuse(absl::StrFormat("a tensor is for %s, which worker '%s' does not have or use", device.str(),
                         self_name_));
}

// ---- Written messages.

std::string DeviceLayer::offer_transfers(MessageRoute& route) {
  Part* part = part_of(route);
  const bool has_transfers = part != nullptr && part->has_transfers();
  const DeviceMap* map = route.call() == nullptr ? map_for(route.peer()) : nullptr;
  if (!has_transfers && map == nullptr) return {};
  proto::DeviceAttachment attachment;
  if (map != nullptr) {
    for (const auto& [here, there] : map->pairs()) {
      proto::DevicePair& pair = *attachment.add_map();
      write_device(here, *pair.mutable_from());
      write_device(there, *pair.mutable_to());
    }
  }
  if (has_transfers) {
    for (Group& group : part->groups) {
      proto::DeviceTransfer& transfer = *attachment.add_transfers();
      transfer.set_tensors(static_cast<std::uint32_t>(group.tensors.size()));
      write_device(group.to, *transfer.mutable_to());
      const Offered offered = offer(route, std::move(group));
      transfer.set_kept(offered.kept);
      transfer.set_ticket(offered.ticket);
    }
  }
  return attachment.SerializeAsString();
}

bool DeviceLayer::take(MessageRoute& route, const at::Tensor& dense, c10::Device target,
                       proto::DeviceSlot& slot) {
  DevicePlane* plane = this->plane();
  if (plane == nullptr || dense.nbytes() < kMinTransferBytes ||
      dense.device().type() != target.type() || !plane->is_usable(route.peer())) {
    return false;
  }
  const auto runtime = find_device_runtime(dense.device().type());
  if (runtime == nullptr) return false;
  const c10::Stream stream = runtime->current_stream(dense.device());
  std::vector<Group>& groups = make_part(route).groups;
  auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& each) {
    return each.to == target && each.stream == stream;
  });
  if (group == groups.end()) group = groups.insert(group, Group{target, stream, {}});
  slot.set_transfer(static_cast<std::uint32_t>(group - groups.begin()));
  slot.set_position(static_cast<std::uint32_t>(group->tensors.size()));
  group->tensors.push_back(dense);
  return true;
}

// ---- Read messages.

void DeviceLayer::on_receive(MessageRoute& route, MessageKind kind, const std::string& bytes) {
  const auto fail = [&](const char* problem) {
    refuse(absl::StrFormat("what worker '%s' says about devices %s", route.peer().name, problem));
  };
  proto::DeviceAttachment attachment;
  if (!attachment.ParseFromString(bytes)) fail("cannot be parsed");
  Part& part = make_part(route);
  DeviceMap map;
  if (attachment.map_size() > kMostPairs) fail("is a map with too many entries");
  for (const proto::DevicePair& pair : attachment.map()) {
    const auto from = read_device(pair.from());
    const auto to = read_device(pair.to());
    if (!from.has_value() || !to.has_value() || map.find(*from).has_value()) {
      fail("is no map of devices");
    }
    map.map(*from, *to);
  }
  if (kind == MessageKind::kCall) part.results = map.reversed();
  std::size_t tensors = 0;
  for (const proto::DeviceTransfer& transfer : attachment.transfers()) {
    const auto to = read_device(transfer.to());
    tensors += transfer.tensors();
    if (!to.has_value() || to->is_cpu() || transfer.ticket() == 0 || transfer.tensors() == 0 ||
        tensors > kMostTensors) {
      fail("is no list of transfers");
    }
    Incoming incoming;
    incoming.ticket = transfer.ticket();
    incoming.kept = transfer.kept();
    incoming.to = *to;
    incoming.tensors.resize(transfer.tensors());
    incoming.checked.resize(transfer.tensors());
    part.incoming.push_back(std::move(incoming));
  }
}

void DeviceLayer::check_size(MessageRoute& route, const proto::DeviceSlot& slot,
                             std::size_t size_bytes) {
  Part* part = part_of(route);
  const bool exists = part != nullptr && slot.transfer() < part->incoming.size() &&
                      slot.position() < part->incoming[slot.transfer()].tensors.size();
  if (!exists) refuse("a tensor refers to a transfer between devices that was not announced");
  Incoming& incoming = part->incoming[slot.transfer()];
  if (incoming.checked[slot.position()]) {
    refuse("two tensors refer to one place in a transfer between devices");
  }
  incoming.checked[slot.position()] = true;
  if (size_bytes > max_message_bytes_ - part->incoming_bytes) {
    throw RpcError(ErrorCode::kResourceExhausted,
                   absl::StrFormat("the tensors that come from device to device with a message of "
                                   "worker '%s' take more than max_message_bytes, %d",
                                   route.peer().name, max_message_bytes_));
  }
  part->incoming_bytes += size_bytes;
}

void DeviceLayer::receive(MessageRoute& route, const proto::DeviceSlot& slot,
                          const at::Tensor& dense) {
  Incoming& incoming = part_of(route)->incoming[slot.transfer()];
  if (dense.device() != incoming.to) {
    refuse(absl::StrFormat("a tensor for %s is in a transfer to %s", dense.device().str(),
                           incoming.to.str()));
  }
  incoming.tensors[slot.position()] = dense.detach();
}

}  // namespace sinew::internal
