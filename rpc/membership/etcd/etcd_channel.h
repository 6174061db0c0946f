#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "sinew/rpc/membership/etcd/etcd_options.h"

namespace sinew::internal::etcd {

/// A connection to one server of etcd, at any of those addresses, which are of one kind.
/// kInvalidArgument names the PEM file that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> make_etcd_channel(
    const std::string& endpoint, const std::vector<std::string>& addresses,
    const EtcdOptions& options);

}  // namespace sinew::internal::etcd
