// In place of etcd_membership.cc, where etcd is left out of the build.

#include "sinew/rpc/membership/etcd_membership.h"

namespace sinew::internal {
namespace {

absl::Status absent() {
  return absl::UnimplementedError(
      "this build of Sinew has no etcd: configure it with SINEW_WITH_ETCD=ON, or write another "
      "rendezvous URL");
}

}  // namespace

absl::Status read_etcd_url(absl::string_view, Rendezvous&) { return absent(); }

absl::StatusOr<StartRegistry> etcd_registry(const MembershipOptions&, const EtcdUse&) {
  return absent();
}

}  // namespace sinew::internal
