#include "sinew/rpc/transport/credentials.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {
namespace {

using sinew::testing::Certificates;
using sinew::testing::Validity;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GrpcCredentials : public ::testing::Test {
 protected:
  struct Worker {
    RecordingAcceptor acceptor;
    std::unique_ptr<Transport> transport;

    explicit Worker(Credentials credentials, std::string listen = "127.0.0.1:0") {
      GrpcTransportOptions options;
      options.credentials = std::move(credentials);
      options.listen = {std::move(listen)};
      transport = make_grpc_transport(std::move(options));
    }
    ~Worker() { transport->shutdown(); }
    void start() {
      const absl::Status started = transport->start(&acceptor, nullptr);
      ASSERT_TRUE(started.ok()) << started;
    }
  };

  /// Connects and expects to be refused.
  static absl::Status refusal(Worker& from, const std::string& address,
                              const std::string& expected_name) {
    auto handler = std::make_shared<RecordingHandler>();
    const auto connection = from.transport->connect(address, "hi", expected_name, handler);
    EXPECT_TRUE(handler->wait_down());
    EXPECT_FALSE(handler->is_up());
    return handler->reason();
  }

  Certificates certificates_;
};

TEST_F(GrpcCredentials, MutualTlsProvesBothEnds) {
  Worker a(Credentials::mutual_tls(
      certificates_.issue("worker-a", "DNS:worker-a,URI:spiffe://job/worker-a")));
  Worker b(Credentials::mutual_tls(certificates_.issue("worker-b", "DNS:b.example,IP:127.0.0.1")));
  a.start();
  b.start();
  for (const std::string expected : {"", "b.example"}) {
    auto handler = std::make_shared<RecordingHandler>();
    const auto connection = a.transport->connect(b.transport->address(), "hi", expected, handler);
    ASSERT_TRUE(handler->wait_up()) << handler->reason();
    EXPECT_TRUE(connection->remote().authenticated);
    EXPECT_THAT(connection->remote().names,
                ::testing::IsSupersetOf({"worker-b", "b.example", "127.0.0.1"}));
    connection->close(absl::UnavailableError("done"));
    ASSERT_TRUE(handler->wait_down());
  }
  ASSERT_FALSE(b.acceptor.remotes().empty());
  EXPECT_TRUE(b.acceptor.remotes()[0].authenticated);
  EXPECT_THAT(b.acceptor.remotes()[0].names,
              ::testing::IsSupersetOf({"worker-a", "spiffe://job/worker-a"}));
}

TEST_F(GrpcCredentials, TlsFromMemoryProvesTheAcceptorOnly) {
  const TlsFiles files = certificates_.issue("worker-b");
  const TlsPem pem{Certificates::read(files.ca), Certificates::read(files.certificate),
                   Certificates::read(files.key)};
  Worker a(Credentials::tls(pem));
  Worker b(Credentials::tls(pem));
  a.start();
  b.start();
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(b.transport->address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up()) << handler->reason();
  EXPECT_TRUE(connection->remote().authenticated);
  EXPECT_FALSE(b.acceptor.remotes().at(0).authenticated);
  ASSERT_TRUE(
      connection->send(Lane::kCalls, Frame{"x", {absl::Cord(std::string(300'000, 'p'))}, {}}).ok());
  ASSERT_TRUE(b.acceptor.handler()->wait_frames(Lane::kCalls, 1));
}

TEST_F(GrpcCredentials, AnotherNameIsRefused) {
  const TlsFiles files = certificates_.issue("worker-b");
  Worker a(Credentials::mutual_tls(files));
  Worker b(Credentials::mutual_tls(files));
  a.start();
  b.start();
  const absl::Status reason = refusal(a, b.transport->address(), "somebody-else");
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnauthenticated) << reason;
  EXPECT_THAT(std::string(reason.message()), HasSubstr("does not carry the expected name"));
}

TEST_F(GrpcCredentials, AForeignAuthorityIsRefused) {
  TlsFiles foreign = certificates_.issue("stranger", "", "other-ca");
  foreign.ca = certificates_.path("other-ca.pem");
  Worker a(Credentials::mutual_tls(certificates_.issue("worker-a", "IP:127.0.0.1")));
  Worker stranger(Credentials::mutual_tls(foreign));
  a.start();
  stranger.start();
  const absl::Status reason = refusal(a, stranger.transport->address(), "");
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnauthenticated) << reason;
  EXPECT_THAT(std::string(reason.message()), HasSubstr("not signed by our authority"));
  EXPECT_EQ(stranger.acceptor.count(), 0U);
}

TEST_F(GrpcCredentials, AClientWithoutAnAcceptedCertificateIsRefused) {
  TlsFiles foreign = certificates_.issue("stranger", "", "other-ca");
  // Trusts the right authority, but shows a certificate of another one.
  foreign.ca = certificates_.bundle("both.pem", {foreign.ca, certificates_.path("other-ca.pem")});
  Worker b(Credentials::mutual_tls(certificates_.issue("worker-b")));
  Worker stranger(Credentials::mutual_tls(foreign));
  Worker anonymous(Credentials::tls(certificates_.issue("worker-a")));
  b.start();
  stranger.start();
  anonymous.start();
  for (Worker* each : {&stranger, &anonymous}) {
    const absl::Status reason = refusal(*each, b.transport->address(), "");
    EXPECT_EQ(reason.code(), absl::StatusCode::kUnauthenticated) << reason;
  }
  EXPECT_TRUE(b.acceptor.hellos().empty());
}

TEST_F(GrpcCredentials, AnExpiredCertificateIsRefusedAtBothEnds) {
  const TlsFiles expired = certificates_.issue("old", "", "ca", Validity::expired());
  Worker own(Credentials::mutual_tls(expired));
  const absl::Status status = own.transport->start(&own.acceptor, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(expired.certificate));
  EXPECT_THAT(std::string(status.message()), HasSubstr("expired on"));

  // A worker whose certificate ended while it ran: a server of gRPC's own, which does not check.
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back(
      {Certificates::read(expired.key), Certificates::read(expired.certificate)});
  grpc::CallbackGenericService no_methods;
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(&no_methods);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  Worker a(Credentials::mutual_tls(certificates_.issue("worker-a")));
  a.start();
  const absl::Status reason = refusal(a, "127.0.0.1:" + std::to_string(port), "");
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnauthenticated) << reason;
  EXPECT_THAT(std::string(reason.message()), HasSubstr("has expired or"));
  server->Shutdown();
}

TEST_F(GrpcCredentials, ACertificateIsCheckedWithItsAuthoritiesBeforeItIsUsed) {
  const auto check = [](const TlsFiles& files) { return Credentials::mutual_tls(files).check(); };
  const auto text = [&](const TlsFiles& files) { return std::string(check(files).message()); };

  const TlsFiles future = certificates_.issue("future", "", "ca", Validity::in_the_future());
  EXPECT_EQ(check(future).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text(future), AllOf(HasSubstr(future.certificate),
                                  HasSubstr("is not valid before Jan  1 00:00:00 2090 GMT")));

  TlsFiles foreign = certificates_.issue("foreign", "", "other-ca");
  EXPECT_EQ(check(foreign).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(text(foreign),
              HasSubstr("certificate file \"" + foreign.certificate +
                        "\" is not signed by an authority in CA file \"" + foreign.ca + "\""));
  foreign.ca = certificates_.bundle("both.pem", {foreign.ca, certificates_.path("other-ca.pem")});
  EXPECT_TRUE(check(foreign).ok()) << check(foreign);

  // An authority in between may come with the certificate or with the authorities, also alone.
  certificates_.issue_authority("middle", "ca");
  const std::string middle = certificates_.path("middle.pem");
  TlsFiles nested = certificates_.issue("nested", "", "middle");
  EXPECT_EQ(check(nested).code(), absl::StatusCode::kInvalidArgument) << check(nested);
  nested.ca = middle;
  EXPECT_TRUE(check(nested).ok()) << check(nested);
  nested.ca = certificates_.path("ca.pem");
  nested.certificate = certificates_.bundle("chain.pem", {nested.certificate, middle});
  EXPECT_TRUE(check(nested).ok()) << check(nested);

  certificates_.issue_authority("ended", "ca", Validity::expired());
  const std::string ended = certificates_.path("ended.pem");
  TlsFiles orphan = certificates_.issue("orphan", "", "ended");
  orphan.certificate = certificates_.bundle("orphan-chain.pem", {orphan.certificate, ended});
  EXPECT_EQ(check(orphan).code(), absl::StatusCode::kFailedPrecondition) << check(orphan);
  EXPECT_THAT(text(orphan),
              AllOf(HasSubstr("certificate file \"" + orphan.certificate), HasSubstr("CN = ended"),
                    HasSubstr("expired on Jan  1 00:00:00 2021 GMT")));
  orphan.certificate = certificates_.path("orphan.pem");
  orphan.ca = ended;
  EXPECT_THAT(text(orphan), AllOf(HasSubstr("CA file \"" + ended), HasSubstr("expired on")));
}

TEST_F(GrpcCredentials, TlsAndPlainTextDoNotMix) {
  Worker secure(Credentials::mutual_tls(certificates_.issue("worker-a")));
  Worker plain(Credentials::insecure());
  secure.start();
  plain.start();
  const absl::Status to_plain = refusal(secure, plain.transport->address(), "");
  EXPECT_EQ(to_plain.code(), absl::StatusCode::kUnauthenticated) << to_plain;
  EXPECT_FALSE(refusal(plain, secure.transport->address(), "").ok());
}

TEST_F(GrpcCredentials, AKeyThatEverybodyCanReadIsRefused) {
  const TlsFiles files = certificates_.issue("worker-a");
  EXPECT_TRUE(Credentials::mutual_tls(files).check().ok());
  using std::filesystem::perms;
  for (const perms wrong : {perms::others_read, perms::others_write}) {
    std::filesystem::permissions(files.key, perms::owner_read | perms::owner_write | wrong);
    const absl::Status refused = Credentials::mutual_tls(files).check();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(files.key + "\" can be read or changed by everybody"));
  }
  std::filesystem::permissions(files.key, perms::owner_read | perms::group_read);
  EXPECT_TRUE(Credentials::mutual_tls(files).check().ok());
}

TEST_F(GrpcCredentials, TextsNameTheWrongFile) {
  const TlsFiles good = certificates_.issue("worker-a");
  const TlsFiles other = certificates_.issue("worker-b");
  std::ofstream(certificates_.path("garbled.pem")) << "-----BEGIN CERTIFICATE-----\nnonsense\n";
  const auto message = [](const TlsFiles& files) {
    const absl::Status status = Credentials::mutual_tls(files).check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(Credentials::mutual_tls(files).server_credentials().status(), status);
    EXPECT_EQ(Credentials::tls(files).channel_credentials().status(), status);
    return std::string(status.message());
  };
  TlsFiles files = good;
  files.ca = certificates_.path("missing.pem");
  EXPECT_THAT(message(files), HasSubstr("cannot read CA file \"" + files.ca));
  files = good;
  files.certificate = certificates_.path("garbled.pem");
  EXPECT_THAT(message(files),
              HasSubstr("certificate file \"" + files.certificate + "\" holds no PEM certificate"));
  files = good;
  files.key = good.certificate;
  EXPECT_THAT(message(files), HasSubstr("holds no PEM private key"));
  files = good;
  files.key = other.key;
  EXPECT_THAT(message(files), HasSubstr("is not the key of certificate file"));
  EXPECT_TRUE(Credentials::mutual_tls(good).check().ok());
  EXPECT_TRUE(Credentials::insecure().check().ok());
}

TEST_F(GrpcCredentials, InsecureStaysOnThisMachine) {
  Worker everywhere(Credentials::insecure(), "0.0.0.0:0");
  GrpcTransportOptions options;
  options.listen = {"0.0.0.0:0"};
  options.advertised = "127.0.0.1";
  everywhere.transport = make_grpc_transport(options);
  const absl::Status status = everywhere.transport->start(&everywhere.acceptor, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("Credentials::insecure_on_any_network()"));

  Worker a(Credentials::insecure());
  a.start();
  const absl::Status reason = refusal(a, "192.0.2.1:4242", "");
  EXPECT_EQ(reason.code(), absl::StatusCode::kPermissionDenied) << reason;
  EXPECT_THAT(std::string(reason.message()), HasSubstr("Credentials::insecure_on_any_network()"));

  options.credentials = Credentials::insecure_on_any_network();
  everywhere.transport = make_grpc_transport(options);
  EXPECT_TRUE(everywhere.transport->start(&everywhere.acceptor, nullptr).ok());
}

}  // namespace
}  // namespace sinew::internal
