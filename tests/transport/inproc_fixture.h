#pragma once

#include <memory>
#include <string>
#include <utility>

#include "sinew/rpc/transport/inproc/inproc_client.h"
#include "sinew/rpc/transport/inproc/inproc_transport.h"
#include "sinew/tests/transport/transport_conformance.h"

namespace sinew::internal {

/// Transports of one in-process network.
class InprocFixture : public TransportFixture {
 public:
  explicit InprocFixture(InprocMode mode = InprocMode::kThreaded)
      : network_(std::make_shared<InprocNetwork>(mode)) {}

  InprocNetwork& network() { return *network_; }

  std::unique_ptr<Transport> make(const Transport::Limits& limits) override {
    InprocOptions options;
    options.limits = limits;
    return make_inproc_transport(network_, std::move(options));
  }
  std::string closed_address() override { return "inproc://nobody"; }
  absl::StatusOr<Frame> unary_call(const std::string& address, Frame request,
                                   std::chrono::nanoseconds timeout) override {
    return start_inproc_unary_call(network_, address, std::move(request), {}, timeout)
        ->wait(timeout);
  }

 private:
  const std::shared_ptr<InprocNetwork> network_;
};

}  // namespace sinew::internal
