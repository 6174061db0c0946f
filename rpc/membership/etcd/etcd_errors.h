#pragma once

#include <string>

#include "absl/status/status.h"
#include "sinew/rpc/membership/etcd/etcd_options.h"

namespace sinew::internal::etcd {

/// What to do about an error of one attempt.
enum class Remedy {
  kNone,          // it is the answer
  kAgain,         // the same server, in a moment
  kOtherServer,   // the next server
  kAuthenticate,  // a new token
};

struct Failure {
  Remedy remedy = Remedy::kNone;
  /// For people: names the server, and what to do.
  absl::Status status;
};

/// `error` is what gRPC says of an attempt at `endpoint`: etcd's own words, or gRPC's.
Failure explain_error(const absl::Status& error, const std::string& endpoint,
                      const EtcdOptions& options);

}  // namespace sinew::internal::etcd
