#include "sinew/rpc/membership/member_codec.h"

#include <algorithm>
#include <cstddef>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/wire/device_codec.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostAddressBytes = 1024;
constexpr int kMostMembers = 65536;
constexpr int kMostLeft = 1024;
constexpr int kMostDevices = 256;
constexpr std::size_t kMostReasons = 64;
constexpr std::size_t kMostReasonBytes = 1024;

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

const Member* find_process(const MemberView& view, const WorkerInfo& worker) {
  for (const Member& member : view.members) {
    const WorkerInfo& other = member.worker;
    if (other.name == worker.name && other.incarnation == worker.incarnation) return &member;
  }
  return nullptr;
}

void note_left(MemberView& view, Incarnation incarnation) {
  if (view.left.size() >= kMostLeft) view.left.erase(view.left.begin());
  view.left.push_back(incarnation);
}

Departure how_departed(const MemberView& view, Incarnation incarnation) {
  const bool left = std::find(view.left.begin(), view.left.end(), incarnation) != view.left.end();
  return left ? Departure::kLeft : Departure::kLost;
}

void note_lost(MemberView& view, Incarnation incarnation, const std::string& reason) {
  if (reason.empty() || !reason_of_loss(view, incarnation).empty()) return;
  if (view.lost.size() >= kMostReasons) view.lost.erase(view.lost.begin());
  view.lost.push_back({incarnation, printable(reason, kMostReasonBytes)});
}

std::string reason_of_loss(const MemberView& view, Incarnation incarnation) {
  const auto found = std::find_if(view.lost.begin(), view.lost.end(), [&](const LostMember& lost) {
    return lost.incarnation == incarnation;
  });
  return found == view.lost.end() ? "" : found->reason;
}

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

void encode(const MemberView& view, proto::MemberList& out) {
  out.set_version(view.version);
  out.set_world_size(view.world_size);
  for (const Member& member : view.members) encode(member, *out.add_members());
  for (const Incarnation incarnation : view.left) out.add_left(incarnation.value);
  encode(view.instance, *out.mutable_instance());
  for (const std::string& name : view.world_names) out.add_world_names(name);
  for (const LostMember& lost : view.lost) {
    proto::LostMember& each = *out.add_lost();
    each.set_incarnation(lost.incarnation.value);
    each.set_reason(lost.reason);
  }
}

void encode(const JobInstance& instance, proto::JobInstance& out) {
  out.set_attempt(instance.attempt);
  out.set_time_us(instance.time_us);
  out.set_random(instance.random);
}

JobInstance decode(const proto::JobInstance& in) {
  return {in.attempt(), in.time_us(), in.random()};
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

absl::StatusOr<Contact> decode_ask_at(const proto::JoinResponse& in) {
  if (!in.ask_name().empty()) {
    const absl::Status name = validate_worker_name(in.ask_name());
    if (!name.ok()) return name;
  }
  const absl::Status address = check_address(in.ask_name(), in.ask_at());
  if (!address.ok()) return address;
  return Contact{in.ask_at(), in.ask_name()};
}

absl::StatusOr<MemberView> decode(const proto::MemberList& in) {
  if (in.members_size() > kMostMembers || in.world_size() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a member list with ", in.members_size(), " members for a world of ",
                     in.world_size(), " is refused; at most ", kMostMembers, " are allowed"));
  }
  if (in.left_size() > kMostLeft) {
    return absl::InvalidArgumentError(absl::StrCat("a member list with ", in.left_size(),
                                                   " workers that left is refused; at most ",
                                                   kMostLeft, " are allowed"));
  }
  MemberView view;
  view.version = in.version();
  view.world_size = in.world_size();
  absl::flat_hash_set<std::string> names;
  absl::flat_hash_set<std::int32_t> ranks;
  for (const proto::Member& each : in.members()) {
    absl::StatusOr<Member> member = decode(each);
    if (!member.ok()) return member.status();
    const WorkerInfo& worker = member->worker;
    const bool is_new = names.insert(worker.name).second && ranks.insert(worker.rank).second;
    if (worker.rank < 0 || !is_new) {
      return absl::InvalidArgumentError(absl::StrCat("a member list has worker '", worker.name,
                                                     "' with rank ", worker.rank,
                                                     ", whose name or rank is missing or taken"));
    }
    view.members.push_back(*std::move(member));
  }
  std::sort(view.members.begin(), view.members.end(),
            [](const Member& a, const Member& b) { return a.worker.rank < b.worker.rank; });
  for (const std::uint64_t incarnation : in.left()) view.left.push_back({incarnation});
  // A text too many, or too long, is no reason to refuse a list.
  for (const proto::LostMember& each : in.lost()) {
    note_lost(view, {each.incarnation()}, each.reason());
  }
  view.instance = decode(in.instance());
  for (const std::string& name : in.world_names()) {
    const absl::Status valid = validate_worker_name(name);
    if (!valid.ok()) return valid;
    view.world_names.push_back(name);
  }
  if (in.world_names_size() != 0 && in.world_names_size() != in.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("a member list with ", in.world_names_size(),
                                                   " names for a world of ", in.world_size(),
                                                   " is refused"));
  }
  return view;
}

}  // namespace sinew::internal
