#include "sinew/rpc/membership/etcd/etcd_options.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal::etcd {
namespace {

constexpr char kDefaultPort[] = ":2379";

absl::Status wrong_url(absl::string_view url, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", url, "\": ", what, "; write etcd://host:2379,host:2379/prefix"));
}

bool has_port(absl::string_view endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  // The colons of "[::1]" are none of a port.
  return colon != absl::string_view::npos && !absl::EndsWith(endpoint, "]");
}

}  // namespace

absl::Status check(const EtcdOptions& options) {
  if (options.endpoints.empty()) return absl::InvalidArgumentError("no etcd server is named");
  for (const std::string& endpoint : options.endpoints) {
    const absl::StatusOr<HostPort> address = parse_host_port(endpoint);
    if (!address.ok()) return address.status();
    if (address->port == 0 || address->is_wildcard()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no client can connect to etcd at ", endpoint, ": name a host and a port"));
    }
    if (!options.tls.has_value() && !options.trusts_network && !address->is_loopback()) {
      return absl::PermissionDeniedError(absl::StrCat(
          endpoint,
          " is not a loopback address, and etcd would be used without TLS: give it the "
          "certificate of etcd's authority, or say that everybody on this network is trusted"));
    }
  }
  if (options.tls.has_value()) {
    if (options.tls->ca.empty()) {
      return absl::InvalidArgumentError("TLS to etcd needs the certificates of its authority");
    }
    if (options.tls->certificate.empty() != options.tls->key.empty()) {
      return absl::InvalidArgumentError(
          "a certificate for etcd needs its key, and a key its certificate: give both or none");
    }
  }
  if (options.user.empty() && !options.password.empty()) {
    return absl::InvalidArgumentError("a password for etcd needs its user");
  }
  return absl::OkStatus();
}

absl::StatusOr<EtcdUrl> parse_etcd_url(absl::string_view url) {
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "etcd://"))
    return wrong_url(url, "it does not begin with etcd://");
  const std::size_t slash = rest.find('/');
  EtcdUrl parsed;
  for (const absl::string_view part : absl::StrSplit(rest.substr(0, slash), ',')) {
    if (part.empty()) return wrong_url(url, "a server's address is empty");
    // It would be shown with each text about the URL.
    if (absl::StrContains(part, '@')) {
      return wrong_url(rest.substr(rest.rfind('@') + 1), "user and password are no part of it");
    }
    std::string endpoint(part);
    if (!has_port(part)) endpoint += kDefaultPort;
    const absl::StatusOr<HostPort> address = parse_host_port(endpoint);
    if (!address.ok()) return wrong_url(url, address.status().message());
    parsed.endpoints.push_back(std::move(endpoint));
  }
  if (slash == absl::string_view::npos) return wrong_url(url, "it has no prefix");
  absl::string_view prefix = rest.substr(slash);
  while (absl::ConsumeSuffix(&prefix, "/")) {
  }
  if (prefix.empty()) return wrong_url(url, "it has no prefix");
  if (absl::StrContains(prefix, "//") || absl::StrContains(prefix, '?')) {
    return wrong_url(url, absl::StrCat("the prefix \"", prefix, "\" has an empty part or a '?'"));
  }
  parsed.prefix = std::string(prefix);
  return parsed;
}

}  // namespace sinew::internal::etcd
