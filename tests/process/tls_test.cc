// Encrypted connections between processes, with certificates made here.

#include <sys/socket.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/processes.h"

using sinew::testing::ChildProcess;
using sinew::testing::run_program;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

constexpr const char* kOpenssl = "/usr/bin/openssl";

class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
    make_authority("ca");
    meet_ = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port(AF_INET));
  }

  void make_authority(const std::string& name) {
    run_program({kOpenssl, "req", "-x509", "-newkey", "ec", "-pkeyopt",
                 "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", folder_.file(name + ".key"),
                 "-out", folder_.file(name + ".pem"), "-subj", "/CN=" + name, "-days", "2"});
  }
  /// A certificate for `names` ("DNS:a,IP:127.0.0.1") in files named after `file`, valid for `days`
  /// (negative: expired).
  void make_certificate(const std::string& file, const std::string& names,
                        const std::string& authority = "ca", int days = 1) {
    const std::string request = folder_.file(file + ".csr");
    run_program({kOpenssl, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                 "-nodes", "-keyout", folder_.file(file + ".key"), "-out", request, "-subj",
                 "/CN=" + file, "-addext", "subjectAltName=" + names});
    run_program({kOpenssl, "x509", "-req", "-in", request, "-CA", folder_.file(authority + ".pem"),
                 "-CAkey", folder_.file(authority + ".key"), "-CAcreateserial", "-copy_extensions",
                 "copy", "-days", absl::StrCat(days), "-out", folder_.file(file + ".pem")});
  }
  std::string start_line(const std::string& name, int rank, const std::string& certificate,
                         const std::string& kind, int join_ms = 15000) {
    return absl::StrCat("start name=", name, " rank=", rank, " world=2 join_ms=", join_ms,
                        " init=", meet_, " tls=", kind, " ca=", folder_.file("ca.pem"),
                        " cert=", folder_.file(certificate + ".pem"),
                        " key=", folder_.file(certificate + ".key"));
  }
  static std::unique_ptr<ChildProcess> spawn() {
    return std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
  }

  const sinew::testing::TemporaryFolder folder_;
  std::string meet_;
};

TEST_F(Tls, RightCertificatesWorkBothWays) {
  for (const char* kind : {"mutual", "one-way"}) {
    SCOPED_TRACE(kind);
    meet_ = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port(AF_INET));
    make_certificate("a", "DNS:a,IP:127.0.0.1");
    make_certificate("b", "DNS:b,IP:127.0.0.1");
    const auto a = spawn();
    const auto b = spawn();
    a->send(start_line("a", 0, "a", kind));
    b->send(start_line("b", 1, "b", kind));
    EXPECT_THAT(a->receive(), StartsWith("ok "));
    EXPECT_THAT(b->receive(), StartsWith("ok "));
    EXPECT_EQ(a->ask("add b"), "ok 3");
    EXPECT_EQ(b->ask("add a"), "ok 3");
    EXPECT_EQ(a->ask("hold b it"), "ok ");
    EXPECT_EQ(a->ask("use it"), "ok 2");
    a->send("shutdown graceful 50000");
    b->send("shutdown graceful 50000");
    EXPECT_EQ(a->receive(), "ok ");
    EXPECT_EQ(b->receive(), "ok ");
  }
}

TEST_F(Tls, ForeignAuthorityIsRefused) {
  make_authority("foreign");
  make_certificate("a", "DNS:a,IP:127.0.0.1");
  make_certificate("b", "DNS:b,IP:127.0.0.1", "foreign");
  const auto a = spawn();
  const auto b = spawn();
  a->send(start_line("a", 0, "a", "mutual"));
  // It trusts the right authority, but shows a certificate of another one.
  // Not longer than the other one, which would be gone before.
  b->send(start_line("b", 1, "b", "mutual", /*join_ms=*/5000));
  EXPECT_THAT(b->receive(), AllOf(StartsWith("error UNAUTHENTICATED"), HasSubstr("certificate")));
  EXPECT_THAT(a->receive(),
              AllOf(StartsWith("error DEADLINE_EXCEEDED"), HasSubstr("missing ranks: 1")));
}

TEST_F(Tls, AWorkerOfAForeignJobIsNotTrusted) {
  make_authority("foreign");
  make_certificate("a", "DNS:a,IP:127.0.0.1", "foreign");
  make_certificate("b", "DNS:b,IP:127.0.0.1");
  const auto a = spawn();
  const auto b = spawn();
  a->send(start_line("a", 0, "a", "one-way"));
  b->send(start_line("b", 1, "b", "one-way"));
  EXPECT_THAT(b->receive(), AllOf(StartsWith("error "), HasSubstr("not signed by our authority")));
}

TEST_F(Tls, ExpiredCertificateIsRefusedAtTheStart) {
  make_certificate("a", "DNS:a,IP:127.0.0.1", "ca", -1);
  const auto a = spawn();
  EXPECT_THAT(a->ask(start_line("a", 0, "a", "mutual")),
              AllOf(StartsWith("error FAILED_PRECONDITION"), HasSubstr("expired on"),
                    HasSubstr("renew it")));
}

TEST_F(Tls, NameThatIsNotInTheCertificateIsRefused) {
  make_certificate("a", "DNS:a,IP:127.0.0.1");
  make_certificate("b", "DNS:b,IP:127.0.0.1");
  const auto a = spawn();
  const auto liar = spawn();
  a->send(start_line("a", 0, "a", "mutual"));
  liar->send(start_line("somebody", 1, "b", "mutual"));
  EXPECT_THAT(
      liar->receive(),
      AllOf(StartsWith("error "), HasSubstr("its name is 'somebody', but its certificate is for"),
            HasSubstr("subject alternative names")));
}

TEST_F(Tls, FilesThatDoNotFitAreNamed) {
  make_certificate("a", "DNS:a,IP:127.0.0.1");
  make_certificate("b", "DNS:b,IP:127.0.0.1");
  const auto a = spawn();
  EXPECT_THAT(a->ask(absl::StrCat("start name=a rank=0 world=1 init=", meet_,
                                  " tls=mutual ca=", folder_.file("ca.pem"),
                                  " cert=", folder_.file("a.pem"), " key=", folder_.file("b.key"))),
              HasSubstr("is not the key of"));
  EXPECT_THAT(a->ask(start_line("a", 0, "missing", "mutual")), HasSubstr("missing.pem"));
}

}  // namespace
