#include "sinew/rpc/membership/etcd_membership.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/membership/etcd/etcd_registry.h"

namespace sinew::internal {
namespace {

using etcd::EtcdClient;
using etcd::EtcdOptions;
using etcd::EtcdRegistry;
using std::chrono::seconds;

absl::StatusOr<EtcdOptions> client_options(const Rendezvous& place, const EtcdUse& use) {
  EtcdOptions options;
  options.endpoints = place.seeds;
  options.trusts_network = use.trusts_network;
  const auto read = [&](const char* name) { return use.environment(name).value_or(""); };
  const std::string ca = read("ETCDCTL_CACERT");
  const std::string certificate = read("ETCDCTL_CERT");
  const std::string key = read("ETCDCTL_KEY");
  if (!ca.empty() || !certificate.empty() || !key.empty()) options.tls = {ca, certificate, key};
  if (use.encrypted_only && ca.empty()) {
    return absl::PermissionDeniedError(
        "etcd would be asked in the clear, and nothing may be (WorkerOptions::encrypted_only or "
        "SINEW_ENCRYPTED_ONLY): set ETCDCTL_CACERT");
  }
  const std::pair<std::string, std::string> user =
      absl::StrSplit(read("ETCDCTL_USER"), absl::MaxSplits(':', 1));
  options.user = user.first;
  options.password = user.second.empty() ? read("ETCDCTL_PASSWORD") : user.second;
  if (absl::Status status = etcd::check(options); !status.ok()) {
    return absl::Status(
        status.code(), absl::StrCat("etcd: ", status.message(),
                                    " (ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER and "
                                    "ETCDCTL_PASSWORD say how it is used)"));
  }
  return options;
}

EtcdRegistry::Options registry_options(const MembershipOptions& options, seconds lease) {
  EtcdRegistry::Options registry;
  registry.wanted.job = options.job;
  registry.wanted.world_size = options.rendezvous.world_size;
  registry.wanted.founds = options.rendezvous.founds;
  registry.wanted.instance = draw_job_instance();
  registry.prefix = options.rendezvous.path;
  registry.lease = lease;
  registry.join_for = options.timeout;
  return registry;
}

}  // namespace

absl::Status read_etcd_url(absl::string_view url, Rendezvous& rendezvous) {
  absl::StatusOr<etcd::EtcdUrl> parsed = etcd::parse_etcd_url(url);
  if (!parsed.ok()) return parsed.status();
  rendezvous.seeds = std::move(parsed->endpoints);
  rendezvous.path = std::move(parsed->prefix);
  return absl::OkStatus();
}

absl::StatusOr<StartRegistry> etcd_registry(const MembershipOptions& options, const EtcdUse& use) {
  absl::StatusOr<EtcdOptions> servers = client_options(options.rendezvous, use);
  if (!servers.ok()) return servers.status();
  const seconds lease = std::max(std::chrono::ceil<seconds>(use.lease), seconds(2));
  return [servers = *std::move(servers), wanted = registry_options(options, lease)](
             const registry::Record& self,
             Registry::Listener listener) -> absl::StatusOr<std::shared_ptr<Registry>> {
    absl::StatusOr<std::unique_ptr<EtcdClient>> client = EtcdClient::start(servers);
    if (!client.ok()) return client.status();
    EtcdRegistry::Options own = wanted;
    own.wanted.self = self;
    return EtcdRegistry::start(*std::move(client), std::move(own), std::move(listener));
  };
}

}  // namespace sinew::internal
