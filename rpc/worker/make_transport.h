#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/membership/contact.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

struct StartedTransport {
  std::unique_ptr<Transport> transport;
  /// The one of dial_addresses() at which it answers since the worker may found the job; empty: at
  /// none.
  std::string served_seed;
};

/// Makes and starts the transport that a worker's options ask for: where it binds and what it
/// advertises (loopback when the rendezvous is on loopback, otherwise the interface that routes
/// there). Host names that are not known yet are looked up again until `join_timeout` is over.
/// Blocks.
absl::StatusOr<StartedTransport> start_transport(const WorkerOptions& options,
                                                 const Rendezvous& rendezvous, Acceptor* acceptor,
                                                 UnaryHandler* unary);

/// What tells the addresses that seeds with host names stand for, on `executor`. Null where no seed
/// has one. By the system's resolver: gRPC's own waits seconds for an IPv6 address where no DNS
/// server answers.
std::function<Future<std::vector<Contact>>(const std::string& seed)> make_seed_resolver(
    const Rendezvous& rendezvous, std::shared_ptr<Executor> executor);

}  // namespace sinew::internal
