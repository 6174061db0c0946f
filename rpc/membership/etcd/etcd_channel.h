#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "sinew/rpc/membership/etcd/etcd_options.h"

namespace sinew::internal::etcd {

/// A connection to one server of etcd. kInvalidArgument names the PEM file that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> make_etcd_channel(const std::string& endpoint,
                                                                 const EtcdOptions& options);

}  // namespace sinew::internal::etcd
