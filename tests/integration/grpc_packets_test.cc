// How many packets a call takes. This program's own sendmsg() stands before that of the C library.

#include <dlfcn.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"

namespace {
std::atomic<std::int64_t> packets{0};
}  // namespace

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  using Function = ssize_t (*)(int, const msghdr*, int);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "sendmsg"));
  packets.fetch_add(1, std::memory_order_relaxed);
  return next(socket, message, flags);
}

namespace sinew::testing {
namespace {

class Packets : public ClusterTest {};

// The call, and the answer, which takes the acknowledgement of the call along: gRPC would send it
// by itself when the next read of a stream starts (ADR 35). On a busy machine some reads start
// before the answer is there, so the best of some rounds counts.
TEST_P(Packets, ACallTakesTwo) {
  start(2, testapp::methods());
  const Peer peer = worker(0).peer("worker1");
  constexpr int kCalls = 200;
  double least = 100;
  for (int round = 0; round < 20; ++round) {
    const std::int64_t before = packets;
    for (int i = 0; i < kCalls; ++i) peer.call<&testapp::add>(i, 1);
    least = std::min(least, static_cast<double>(packets - before) / kCalls);
  }
  EXPECT_GE(least, 1.9);
  EXPECT_LE(least, 2.9);
}

INSTANTIATE_TEST_SUITE_P(Over, Packets, ::testing::Values(ClusterTransport::kGrpc),
                         cluster_transport_name);

}  // namespace
}  // namespace sinew::testing
