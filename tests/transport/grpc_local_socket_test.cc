#include "sinew/rpc/transport/grpc/local/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "sinew/tests/transport/grpc_fixture.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {
namespace {

GrpcTransportOptions options_of(std::string listen, bool local_sockets = true) {
  GrpcTransportOptions options;
  options.listen = {std::move(listen)};
  options.tuning.local_sockets = local_sockets;
  return options;
}

/// Where the acceptor sees a connection from `from` to `address` of `to` come from; a frame passes
/// it before.
std::string origin_of(Worker& from, Worker& to, const std::string& address) {
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = from.transport->connect(address, "hi", "", handler);
  EXPECT_TRUE(handler->wait_up()) << handler->reason();
  if (to.acceptor.count() == 0) return "";
  const auto accepted = to.acceptor.handler(to.acceptor.count() - 1);
  EXPECT_TRUE(connection->send(Lane::kCalls, Frame{"ping", {}, {}}).ok());
  EXPECT_TRUE(accepted->wait_frames(Lane::kCalls, 1));
  std::string origin = accepted->connection()->remote().address;
  EXPECT_EQ(connection->remote().address == "unix", origin == "unix");
  connection->close(absl::UnavailableError("done"));
  EXPECT_TRUE(handler->wait_down());
  return origin;
}

int port_of(const Worker& worker) { return parse_host_port(worker.address())->port; }

/// Another one's socket with the abstract name that a worker at this address would take.
class TakenName {
 public:
  explicit TakenName(const std::string& address)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un name = name_of(address, size_);
    EXPECT_EQ(::bind(socket_.number(), reinterpret_cast<const sockaddr*>(&name), size_), 0);
  }
  void listen() { EXPECT_EQ(::listen(socket_.number(), 8), 0); }

  static sockaddr_un name_of(const std::string& address, socklen_t& size) {
    const std::string text = absl::StrCat("sinew/", address);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return name;
  }

 private:
  const FileDescriptor socket_;
  socklen_t size_ = 0;
};

bool become_another_user() {
  constexpr uid_t kNobody = 65534;
  return ::setresuid(kNobody, kNobody, kNobody) == 0;
}

/// Runs `body` in a process of another user; it must call nothing but the system. Returns its
/// result.
template <class F>
int as_another_user(F body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(become_another_user() ? body() : 99);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Root may not, where a container has one user only.
bool may_become_another_user() {
  return as_another_user([] { return 0; }) == 0;
}

TEST(GrpcLocalSocket, WorkersOfOneHostUseIt) {
  Worker a(options_of("127.0.0.1:0"));
  Worker b(options_of("127.0.0.1:0"));
  EXPECT_EQ(origin_of(a, b, b.address()), "unix");
  Worker six(options_of("[::1]:0"));
  EXPECT_EQ(origin_of(a, six, six.address()), "unix");
}

TEST(GrpcLocalSocket, SoTheyDoWhereAWorkerListensOnAllAddresses) {
  Worker a(options_of("127.0.0.1:0"));
  GrpcTransportOptions everywhere = options_of("0.0.0.0:0");
  everywhere.advertised = "127.0.0.1";
  everywhere.credentials = Credentials::insecure_on_any_network();
  Worker b(everywhere);
  EXPECT_EQ(origin_of(a, b, b.address()), "unix");
}

TEST(GrpcLocalSocket, EitherEndMayDoWithout) {
  Worker with(options_of("127.0.0.1:0"));
  Worker without(options_of("127.0.0.1:0", false));
  EXPECT_THAT(origin_of(with, without, without.address()), testing::StartsWith("ipv4:127.0.0.1:"));
  EXPECT_THAT(origin_of(without, with, with.address()), testing::StartsWith("ipv4:127.0.0.1:"));
}

TEST(GrpcLocalSocket, AddressesOfOneNumberAreKeptApart) {
  Worker from(options_of("127.0.0.1:0"));
  Worker one(options_of("127.0.0.1:0"));
  Worker other(options_of(absl::StrCat("127.0.0.2:", port_of(one))));
  EXPECT_EQ(origin_of(from, other, other.address()), "unix");
  EXPECT_EQ(one.acceptor.count(), 0U);
}

TEST(GrpcLocalSocket, ATakenNameLeavesTcp) {
  const ReservedPort port;  // Nobody else gets the port while the name is taken.
  const std::string address = absl::StrCat("127.0.0.3:", parse_host_port(port.address())->port);
  TakenName taken(address);
  Worker a(options_of("127.0.0.1:0"));
  Worker b(options_of(address));
  EXPECT_THAT(origin_of(a, b, address), testing::StartsWith("ipv4:127.0.0."));
}

TEST(GrpcLocalSocket, OtherUsersAreNotServed) {
  if (!may_become_another_user()) GTEST_SKIP() << "this process may not become another user";
  Worker worker(options_of("127.0.0.1:0"));
  socklen_t size = 0;
  const sockaddr_un name = TakenName::name_of(worker.address(), size);
  const int result = as_another_user([&] {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&name), size) != 0) return 1;
    const timeval patience{30, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    // A server of HTTP/2 speaks first.
    char byte = 0;
    return ::read(socket, &byte, 1) == 0 ? 0 : 2;
  });
  EXPECT_EQ(result, 0);
}

TEST(GrpcLocalSocket, WhatListensForAnotherUserIsNotConnectedTo) {
  if (!may_become_another_user()) GTEST_SKIP() << "this process may not become another user";
  const ReservedPort port;
  const std::string address = absl::StrCat("127.0.0.4:", parse_host_port(port.address())->port);
  int bound[2];
  int over[2];
  ASSERT_EQ(::pipe(bound), 0);
  ASSERT_EQ(::pipe(over), 0);
  socklen_t size = 0;
  const sockaddr_un name = TakenName::name_of(address, size);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool ready = become_another_user() &&
                       ::bind(socket, reinterpret_cast<const sockaddr*>(&name), size) == 0 &&
                       ::listen(socket, 8) == 0 && ::write(bound[1], &byte, 1) == 1;
    ::close(over[1]);
    if (ready) [[maybe_unused]]
      const auto ended = ::read(over[0], &byte, 1);
    ::_exit(ready ? 0 : 1);
  }
  ::close(bound[1]);
  char byte = 0;
  EXPECT_EQ(::read(bound[0], &byte, 1), 1);
  EXPECT_FALSE(connect_locally(*parse_host_port(address)).valid());
  Worker a(options_of("127.0.0.1:0"));
  Worker b(options_of(address));
  EXPECT_THAT(origin_of(a, b, address), testing::StartsWith("ipv4:127.0.0."));
  ::close(over[1]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(over[0]);
  ::close(bound[0]);
}

TEST(GrpcLocalSocket, NobodyThereIsNoSocket) {
  const ReservedPort port;
  EXPECT_FALSE(connect_locally(*parse_host_port(port.address())).valid());
  EXPECT_FALSE(connect_locally({std::string(250, 'x'), 1}).valid());
  std::string address;
  {
    const Worker worker(options_of("127.0.0.1:0"));
    address = worker.address();
    EXPECT_TRUE(connect_locally(*parse_host_port(address)).valid());
  }
  EXPECT_FALSE(connect_locally(*parse_host_port(address)).valid());
}

}  // namespace
}  // namespace sinew::internal
