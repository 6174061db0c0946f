#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sinew::internal::etcd {

/// Since any moment that the caller chooses.
using Time = std::chrono::nanoseconds;

/// Paths of PEM files, read for each connection anew.
struct EtcdTls {
  /// The authorities that sign certificates of etcd's servers.
  std::string ca;
  /// This client's own, for etcd with --client-cert-auth; both or none.
  std::string certificate;
  std::string key;
};

struct EtcdOptions {
  /// "host:port" of the servers of one cluster, one or more.
  std::vector<std::string> endpoints;
  /// None: without encryption; on loopback addresses only, unless `trusts_network`.
  std::optional<EtcdTls> tls;
  bool trusts_network = false;
  /// Empty: etcd is used without a user.
  std::string user;
  std::string password;
  /// How long one server may take for one answer, before the next one is asked.
  Time attempt_timeout = std::chrono::seconds(2);
  /// Between two rounds over all endpoints, at first and at most.
  Time first_pause = std::chrono::milliseconds(20);
  Time longest_pause = std::chrono::milliseconds(250);
  /// Of one answer.
  int max_message_bytes = 64 << 20;
};

/// kInvalidArgument says which part is wrong; kPermissionDenied: `trusts_network`.
absl::Status check(const EtcdOptions& options);

struct EtcdUrl {
  std::vector<std::string> endpoints;
  /// Begins with a slash, and does not end with one.
  std::string prefix;
};

/// `etcd://host:2379,host:2379/prefix`; a port that is left out is 2379. kInvalidArgument names the
/// part that is wrong and what to write instead.
absl::StatusOr<EtcdUrl> parse_etcd_url(absl::string_view url);

}  // namespace sinew::internal::etcd
