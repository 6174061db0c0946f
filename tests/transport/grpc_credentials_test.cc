#include "sinew/rpc/transport/credentials.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {
namespace {

using testing::HasSubstr;

/// A folder with certificates, made with the openssl command.
class Certificates {
 public:
  Certificates() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sinew-tls-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    authority("ca");
    authority("other-ca");
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// A certificate for `name` with `names` as alternative ones.
  TlsFiles issue(const std::string& name, const std::string& names = "DNS:worker-b,IP:127.0.0.1",
                 const std::string& signer = "ca") {
    run("openssl ecparam -name prime256v1 -genkey -noout -out " + path(name + ".key"));
    run("openssl req -new -key " + path(name + ".key") + " -subj /CN=" + name + " -out " +
        path(name + ".csr"));
    std::ofstream(path(name + ".ext")) << "subjectAltName=" << names << "\n";
    run("openssl x509 -req -in " + path(name + ".csr") + " -CA " + path(signer + ".pem") +
        " -CAkey " + path(signer + ".key") + " -set_serial 7 -days 2 -extfile " +
        path(name + ".ext") + " -out " + path(name + ".pem"));
    return {path("ca.pem"), path(name + ".pem"), path(name + ".key")};
  }
  /// The same, but it ended years ago.
  TlsFiles issue_expired(const std::string& name) {
    TlsFiles files = issue(name);
    std::ofstream(path("index.txt"));
    std::ofstream(path("serial")) << "01\n";
    std::ofstream(path("ca.cnf")) << "[ca]\ndefault_ca=d\n[d]\ndatabase=" << path("index.txt")
                                  << "\nserial=" << path("serial")
                                  << "\nnew_certs_dir=" << folder_.string()
                                  << "\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n";
    run("openssl ca -batch -config " + path("ca.cnf") + " -in " + path(name + ".csr") + " -cert " +
        path("ca.pem") + " -keyfile " + path("ca.key") +
        " -startdate 20200101000000Z -enddate 20210101000000Z -extfile " + path(name + ".ext") +
        " -out " + path(name + ".pem") + " -notext");
    return files;
  }
  static std::string read(const std::string& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  void authority(const std::string& name) {
    run("openssl ecparam -name prime256v1 -genkey -noout -out " + path(name + ".key"));
    run("openssl req -x509 -new -key " + path(name + ".key") + " -subj /CN=" + name +
        " -days 2 -addext basicConstraints=critical,CA:TRUE -out " + path(name + ".pem"));
  }
  static void run(const std::string& command) {
    ASSERT_EQ(std::system((command + " 2>/dev/null").c_str()), 0) << command;
  }

  std::filesystem::path folder_;
};

class GrpcCredentials : public testing::Test {
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
                testing::IsSupersetOf({"worker-b", "b.example", "127.0.0.1"}));
    connection->close(absl::UnavailableError("done"));
    ASSERT_TRUE(handler->wait_down());
  }
  ASSERT_FALSE(b.acceptor.remotes().empty());
  EXPECT_TRUE(b.acceptor.remotes()[0].authenticated);
  EXPECT_THAT(b.acceptor.remotes()[0].names,
              testing::IsSupersetOf({"worker-a", "spiffe://job/worker-a"}));
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
  TlsFiles foreign = certificates_.issue("stranger", "IP:127.0.0.1", "other-ca");
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
  TlsFiles foreign = certificates_.issue("stranger", "IP:127.0.0.1", "other-ca");
  Worker b(Credentials::mutual_tls(certificates_.issue("worker-b")));
  // Trusts the right authority, but shows a certificate of another one.
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
  const TlsFiles expired = certificates_.issue_expired("old");
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

TEST_F(GrpcCredentials, TlsAndPlainTextDoNotMix) {
  Worker secure(Credentials::mutual_tls(certificates_.issue("worker-a")));
  Worker plain(Credentials::insecure());
  secure.start();
  plain.start();
  const absl::Status to_plain = refusal(secure, plain.transport->address(), "");
  EXPECT_EQ(to_plain.code(), absl::StatusCode::kUnauthenticated) << to_plain;
  EXPECT_FALSE(refusal(plain, secure.transport->address(), "").ok());
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
  options.advertised_host = "127.0.0.1";
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
