#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

struct StartedTransport {
  std::unique_ptr<Transport> transport;
  /// It answers at the rendezvous address.
  bool serves_rendezvous = false;
};

/// Makes and starts the transport that a worker's options ask for: where it binds and what it
/// advertises (design: loopback when the rendezvous is on loopback, otherwise the interface that
/// routes there).
absl::StatusOr<StartedTransport> start_transport(const WorkerOptions& options,
                                                 const Rendezvous& rendezvous, Acceptor* acceptor,
                                                 UnaryHandler* unary);

}  // namespace sinew::internal
