#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

struct InprocOptions {
  /// The transport's address is "inproc://" and this; empty: a number that is free.
  std::string name;
  Transport::Limits limits;
  /// What this end proves to be, as a certificate would. Empty: it proves nothing, and others see
  /// it as not authenticated. Otherwise others see these names, and connect() to it fails with
  /// kUnauthenticated when its `expected_name` is not one of them.
  std::vector<std::string> proven_names;
};

/// A transport between the workers of one process that share `network`. In stepped mode shutdown()
/// runs the last callbacks of the transport itself.
std::unique_ptr<Transport> make_inproc_transport(std::shared_ptr<InprocNetwork> network,
                                                 InprocOptions options = {});

}  // namespace sinew::internal
