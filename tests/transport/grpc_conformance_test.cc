#include "sinew/tests/transport/grpc_fixture.h"

namespace sinew::internal {
namespace {

std::unique_ptr<TransportFixture> plain() { return std::make_unique<GrpcFixture>(); }

/// As between hosts.
std::unique_ptr<TransportFixture> tcp() {
  GrpcTuning tuning;
  tuning.local_sockets = false;
  tuning.same_host_plane = false;
  return std::make_unique<GrpcFixture>(tuning);
}

/// Nearly every payload takes the bulk lane, in many pieces, and packets hold few frames.
std::unique_ptr<TransportFixture> small_pieces() {
  GrpcTuning tuning;
  tuning.bulk_threshold_bytes = 100;
  tuning.chunk_bytes = 1000;
  tuning.packet_bytes = 500;
  tuning.same_host_plane = false;
  return std::make_unique<GrpcFixture>(tuning);
}

INSTANTIATE_TEST_SUITE_P(Grpc, TransportConformance,
                         testing::Values(TransportKind{"Plain", plain}, TransportKind{"Tcp", tcp},
                                         TransportKind{"SmallPieces", small_pieces, false}),
                         conformance_name);

}  // namespace
}  // namespace sinew::internal
