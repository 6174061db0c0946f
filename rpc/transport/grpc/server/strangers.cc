#include "sinew/rpc/transport/grpc/server/strangers.h"

#include <algorithm>

namespace sinew::internal {
namespace {

// What one origin gets: enough for several hosts behind one address, and three more may come.
constexpr std::size_t kOrigins = 4;
constexpr std::size_t kInquiries = 64;
// A message that is being received may be as large as GrpcTuning::max_unary_bytes.
constexpr std::size_t kReceived = 32;

std::shared_ptr<Quota> shared_by_origins(std::size_t in_all, std::size_t at_least = 1) {
  return std::make_shared<Quota>(in_all, std::max(in_all / kOrigins, at_least));
}

}  // namespace

Strangers::Strangers(const GrpcTransportOptions& options)
    : handshakes(shared_by_origins(options.limits.max_handshakes)),
      calls(shared_by_origins(options.tuning.max_unary_calls)),
      inquiries(shared_by_origins(kInquiries)),
      bytes(shared_by_origins(options.tuning.max_unary_held_bytes, options.tuning.max_unary_bytes)),
      receiving(std::make_shared<Turns>(shared_by_origins(kReceived))),
      refusals(options.log) {}

}  // namespace sinew::internal
