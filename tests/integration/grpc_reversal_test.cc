// Workers that others cannot reach, behind NAT or a firewall (docs/link.md, L8): they are asked,
// over the coordinator, to open the connection themselves.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/raw_peer.h"

using sinew::ErrorCode;
using sinew::Worker;
using sinew::WorkerAccess;
using sinew::WorkerInfo;
using sinew::internal::FrameKind;
using sinew::internal::WorkerCore;
using sinew::testing::error_of;
using sinew::testing::RawPeer;
using namespace std::chrono_literals;

namespace {

/// A port of the loopback interface that takes connections and never says anything.
class SilentPort {
 public:
  SilentPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, any, size) != 0 || ::listen(socket_, 64) != 0 ||
        ::getsockname(socket_, any, &size) != 0) {
      throw std::runtime_error("no port that listens");
    }
    number_ = ntohs(address.sin_port);
  }
  ~SilentPort() { ::close(socket_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;

  int number() const { return number_; }

 private:
  const int socket_;
  int number_ = 0;
};

constexpr int kHidden = 2;

std::string about(const WorkerInfo& worker) {
  sinew::proto::WorkerIdentity identity;
  sinew::internal::write_identity(worker, identity);
  return identity.SerializeAsString();
}

/// worker0 coordinates, and nobody reaches worker2 at the address that it has given.
class Reversal : public ::testing::Test {
 protected:
  void start(int size, int port) {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(size);
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.tweak = [port](int rank, sinew::WorkerOptions& worker) {
      if (rank == kHidden) worker.advertise_address = absl::StrCat("127.0.0.1:", port);
    };
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
  }
  void TearDown() override {
    if (cluster_ != nullptr) cluster_->shutdown();
  }

  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  WorkerCore& core(int rank) const { return *WorkerAccess::core(worker(rank)); }
  bool are_linked(int rank, int other) const {
    return core(rank).links().table().find(worker(other).info()).runner != nullptr;
  }
  ErrorCode code_of(int from, int to, const std::string& method, const std::string& body) const {
    return error_of([&] { core(from).control_call(worker(to).info(), method, body, 60s).wait(); })
        .code();
  }

  const int refused_port_ = sinew::testing::free_port();
  std::unique_ptr<sinew::testing::Cluster> cluster_;
};

TEST_F(Reversal, WorkerWhoseAddressRefusesIsCalledByAll) {
  start(4, refused_port_);
  EXPECT_EQ(worker(1).peer(kHidden).call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(worker(kHidden).peer(1).call<&testapp::add>(1, 2), 3);
  // The other way first.
  EXPECT_EQ(worker(kHidden).peer(3).call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(worker(3).peer(kHidden).call<&testapp::add>(1, 2), 3);
}

TEST_F(Reversal, WorkerWhoseAddressSwallowsAllIsCalledByAll) {
  const SilentPort silent;
  start(3, silent.number());
  EXPECT_EQ(worker(1).peer(kHidden).call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(worker(kHidden).peer(1).call<&testapp::add>(1, 2), 3);
}

TEST_F(Reversal, ManyCallsAskOnce) {
  start(3, refused_port_);
  const std::int64_t before = worker(1).counters()["rpc.requests"];
  std::vector<sinew::Future<int>> calls;
  for (int i = 0; i < 200; ++i) {
    calls.push_back(worker(1).peer(kHidden).async<&testapp::add>(i, 1));
  }
  for (int i = 0; i < 200; ++i) EXPECT_EQ(calls[static_cast<std::size_t>(i)].wait(), i + 1);
  // One a second at most, so that there is room for a slow machine.
  EXPECT_LE(worker(1).counters()["rpc.requests"] - before, 200 + 20);
}

TEST_F(Reversal, OnlyTheCoordinatorHasWorkersOpenConnections) {
  start(4, refused_port_);
  EXPECT_EQ(code_of(1, 3, "sinew.link.dial", about(worker(kHidden).info())),
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(code_of(1, 0, "sinew.link.dial", about(worker(3).info())),
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(code_of(1, 3, "sinew.link.ask", about(worker(kHidden).info())),
            ErrorCode::kUnavailable);
  EXPECT_FALSE(are_linked(3, kHidden));
}

TEST_F(Reversal, NobodyIsAskedForOrAboutWhoIsNoMember) {
  start(3, refused_port_);
  EXPECT_EQ(code_of(1, 0, "sinew.link.ask", about({"nobody", -1, {4711}})),
            ErrorCode::kPermissionDenied);
  WorkerInfo earlier = worker(kHidden).info();
  ++earlier.incarnation.value;
  EXPECT_EQ(code_of(1, 0, "sinew.link.ask", about(earlier)), ErrorCode::kPermissionDenied);
  EXPECT_EQ(code_of(1, 0, "sinew.link.ask", "\xff"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(0, 1, "sinew.link.dial", about({"nobody", -1, {4711}})), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(0, 1, "sinew.link.dial", "\xff"), ErrorCode::kInvalidArgument);
}

TEST_F(Reversal, GuestsAskNobody) {
  start(3, refused_port_);
  for (const int rank : {0, 1}) {
    RawPeer guest({"guest", -1, {}});
    ASSERT_TRUE(guest.connect(worker(rank).address()).ok());
    std::uint64_t id = 100;
    for (const char* const method : {"sinew.link.ask", "sinew.link.dial"}) {
      sinew::proto::Envelope envelope;
      envelope.mutable_call()->set_id(++id);
      envelope.mutable_call()->set_method(method);
      envelope.mutable_call()->add_arguments()->set_binary(about(worker(kHidden).info()));
      guest.send(FrameKind::kControl, envelope);
    }
    // What came before this has been looked at.
    EXPECT_TRUE(guest.control_call("sinew.worker.heard").ok());
    for (const sinew::proto::Envelope& heard : guest.heard()) {
      EXPECT_TRUE(!heard.has_reply() || heard.reply().has_error() || heard.reply().id() <= 100)
          << heard.ShortDebugString();
    }
  }
  EXPECT_FALSE(are_linked(1, kHidden));
}

}  // namespace
