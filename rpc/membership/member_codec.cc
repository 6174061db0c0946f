#include "sinew/rpc/membership/member_codec.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/wire/device_codec.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostAddressBytes = 1024;
constexpr int kMostDevices = 256;

absl::Status check_address(const std::string& worker, const std::string& address) {
  const bool is_printable = printable(address) == address;
  if (!address.empty() && address.size() <= kMostAddressBytes && is_printable) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("worker '", worker,
                                                 "' gives no usable address; it must be 1 to ",
                                                 kMostAddressBytes, " printable characters"));
}

}  // namespace

void encode(const Member& member, proto::Member& out) {
  out.mutable_worker()->set_name(member.worker.name);
  out.mutable_worker()->set_rank(member.worker.rank);
  out.mutable_worker()->set_incarnation(member.worker.incarnation.value);
  out.set_address(member.address);
  out.set_method_digest(member.method_digest);
  out.set_device_plane(member.has_device_plane);
  if (!member.devices.has_value()) return;
  for (const c10::Device device : *member.devices) write_device(device, *out.add_devices());
}

absl::StatusOr<Member> decode(const proto::Member& in) {
  Member member;
  member.worker = {in.worker().name(), in.worker().rank(), {in.worker().incarnation()}};
  member.address = in.address();
  member.method_digest = in.method_digest();
  const absl::Status name = validate_worker_name(member.worker.name);
  if (!name.ok()) return name;
  if (member.worker.incarnation.value == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker '", member.worker.name, "' gives no incarnation"));
  }
  if (member.worker.rank < -1) {
    return absl::InvalidArgumentError(absl::StrCat("worker '", member.worker.name, "' gives rank ",
                                                   member.worker.rank, "; ranks start at 0"));
  }
  const absl::Status address = check_address(member.worker.name, member.address);
  if (!address.ok()) return address;
  member.has_device_plane = in.device_plane();
  member.devices.emplace();
  for (const proto::Device& each : in.devices()) {
    const std::optional<c10::Device> device = read_device(each);
    if (!device.has_value() || in.devices_size() > kMostDevices) {
      return absl::InvalidArgumentError(absl::StrCat("worker '", member.worker.name,
                                                     "' says that it has devices which cannot be"));
    }
    member.devices->push_back(*device);
  }
  return member;
}

}  // namespace sinew::internal
