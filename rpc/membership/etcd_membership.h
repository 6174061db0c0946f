#pragma once

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/membership/rendezvous.h"

namespace sinew::internal {

/// `url`, without its query, is etcd://host:port,.../prefix: sets what `rendezvous` needs of it.
/// kInvalidArgument names the part that is wrong; kUnimplemented: this build has no etcd.
absl::Status read_etcd_url(absl::string_view url, Rendezvous& rendezvous);

/// How a worker uses etcd, in addition to what `options` say.
struct EtcdUse {
  /// A member that etcd has not heard for so long is lost. Rounded up to seconds, two at least.
  std::chrono::nanoseconds lease = std::chrono::seconds(15);
  /// Everybody on the way to etcd is trusted: without TLS it may be on another machine.
  bool trusts_network = false;
  /// Nothing may be said without TLS, on this machine either.
  bool encrypted_only = false;
  /// With etcdctl's variables ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY (files), ETCDCTL_USER
  /// ("name" or "name:password") and ETCDCTL_PASSWORD.
  EnvironmentReader environment = process_environment();
};

/// The list of members, and gathers, at etcd: any process of the job may die. While etcd is away no
/// worker joins, is taken for lost or meets others; calls go on. kInvalidArgument,
/// kPermissionDenied: how it is to be used; kUnimplemented: this build has no etcd.
absl::StatusOr<StartRegistry> etcd_registry(const MembershipOptions& options, const EtcdUse& use);

}  // namespace sinew::internal
