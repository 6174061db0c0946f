// Encrypted connections between processes, with certificates made here.

#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::testing::Certificates;
using sinew::testing::ChildProcess;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

class Tls : public ::testing::Test {
 protected:
  std::string start_line(const std::string& name, int rank, const sinew::TlsFiles& files,
                         const std::string& kind, int join_ms = 15000) {
    return absl::StrCat("start name=", name, " rank=", rank, " world=2 join_ms=", join_ms,
                        " init=", meet_, " tls=", kind, " ca=", files.ca,
                        " cert=", files.certificate, " key=", files.key);
  }
  static std::unique_ptr<ChildProcess> spawn() {
    return std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
  }
  /// The two that have been told to start join, call each other, and leave.
  static void expect_a_job(ChildProcess& a, ChildProcess& b) {
    EXPECT_THAT(a.receive(), StartsWith("ok "));
    EXPECT_THAT(b.receive(), StartsWith("ok "));
    EXPECT_EQ(a.ask("add b"), "ok 3");
    EXPECT_EQ(b.ask("add a"), "ok 3");
    EXPECT_EQ(a.ask("hold b it"), "ok ");
    EXPECT_EQ(a.ask("use it"), "ok 2");
    a.send("shutdown graceful 50000");
    b.send("shutdown graceful 50000");
    EXPECT_EQ(a.receive(), "ok ");
    EXPECT_EQ(b.receive(), "ok ");
  }

  const Certificates certificates_;
  std::string meet_ = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port());
};

TEST_F(Tls, RightCertificatesWorkBothWays) {
  for (const char* kind : {"mutual", "one-way"}) {
    SCOPED_TRACE(kind);
    meet_ = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port());
    const auto a = spawn();
    const auto b = spawn();
    a->send(start_line("a", 0, certificates_.issue("a"), kind));
    b->send(start_line("b", 1, certificates_.issue("b"), kind));
    expect_a_job(*a, *b);
  }
}

// A file has the names of those who are at its addresses.
TEST_F(Tls, AFileNeedsNoAddressInACertificate) {
  const sinew::testing::TemporaryFolder folder;
  meet_ = absl::StrCat("file://", folder.file("meet"));
  const auto a = spawn();
  const auto b = spawn();
  a->send(start_line("a", 0, certificates_.issue("a", "DNS:a"), "mutual"));
  b->send(start_line("b", 1, certificates_.issue("b", "DNS:b"), "mutual"));
  expect_a_job(*a, *b);
}

// The registrar of a job that is open runs on; each newcomer knows the new files only.
TEST_F(Tls, RenewedFilesNeedNoRestart) {
  const sinew::TlsFiles own = certificates_.issue("a");
  const std::string trusted = certificates_.bundle("trusted.pem", {own.ca});
  const auto start = [&](ChildProcess& child, const std::string& name,
                         const sinew::TlsFiles& files) {
    return child.ask(absl::StrCat("start name=", name, name == "a" ? " rank=0" : "",
                                  " join_ms=15000 init=", meet_, " tls=mutual ca=", files.ca,
                                  " cert=", files.certificate, " key=", files.key));
  };
  const auto joins = [&](ChildProcess& child, const std::string& name,
                         const sinew::TlsFiles& files) {
    return sinew::testing::eventually(
        [&] { return start(child, name, files).substr(0, 3) == "ok "; });
  };
  const auto a = spawn();
  const auto b = spawn();
  const auto c = spawn();
  ASSERT_THAT(start(*a, "a", {trusted, own.certificate, own.key}), StartsWith("ok "));
  // Of another authority, which is trusted from now on.
  sinew::TlsFiles others = certificates_.issue("b", "", "other-ca");
  others.ca = certificates_.bundle("both.pem", {own.ca, certificates_.path("other-ca.pem")});
  EXPECT_THAT(start(*b, "b", others), StartsWith("error "));
  certificates_.bundle("trusted.pem", {own.ca, certificates_.path("other-ca.pem")});
  EXPECT_TRUE(joins(*b, "b", others));
  EXPECT_EQ(b->ask("add a"), "ok 3");
  // A certificate and a key of its own, which the next one asks for.
  certificates_.issue("a", "", "other-ca");
  others = certificates_.issue("c", "", "other-ca");
  others.ca = certificates_.path("other-ca.pem");
  EXPECT_TRUE(joins(*c, "c", others));
  EXPECT_EQ(c->ask("add a"), "ok 3");
  EXPECT_EQ(a->ask("add b"), "ok 3");
}

TEST_F(Tls, ForeignAuthorityIsRefused) {
  sinew::TlsFiles foreign = certificates_.issue("b", "", "other-ca");
  // It trusts the right authority, but shows a certificate of another one.
  foreign.ca = certificates_.bundle("both.pem", {foreign.ca, certificates_.path("other-ca.pem")});
  const auto a = spawn();
  const auto b = spawn();
  a->send(start_line("a", 0, certificates_.issue("a"), "mutual"));
  // Not longer than the other one, which would be gone before.
  b->send(start_line("b", 1, foreign, "mutual", /*join_ms=*/5000));
  EXPECT_THAT(b->receive(), AllOf(StartsWith("error UNAUTHENTICATED"), HasSubstr("certificate")));
  EXPECT_THAT(a->receive(),
              AllOf(StartsWith("error DEADLINE_EXCEEDED"), HasSubstr("missing ranks: 1")));
}

TEST_F(Tls, AWorkerOfAForeignJobIsNotTrusted) {
  sinew::TlsFiles foreign = certificates_.issue("a", "", "other-ca");
  foreign.ca = certificates_.path("other-ca.pem");
  const auto a = spawn();
  const auto b = spawn();
  a->send(start_line("a", 0, foreign, "one-way"));
  b->send(start_line("b", 1, certificates_.issue("b"), "one-way"));
  EXPECT_THAT(b->receive(), AllOf(StartsWith("error "), HasSubstr("not signed by our authority")));
}

TEST_F(Tls, ExpiredCertificateIsRefusedAtTheStart) {
  const sinew::TlsFiles expired =
      certificates_.issue("a", "", "ca", sinew::testing::Validity::expired());
  const auto a = spawn();
  EXPECT_THAT(a->ask(start_line("a", 0, expired, "mutual")),
              AllOf(StartsWith("error FAILED_PRECONDITION"), HasSubstr(expired.certificate),
                    HasSubstr("expired on Jan  1 00:00:00 2021 GMT: renew it")));
}

TEST_F(Tls, NameThatIsNotInTheCertificateIsRefused) {
  const auto a = spawn();
  const auto liar = spawn();
  a->send(start_line("a", 0, certificates_.issue("a"), "mutual"));
  liar->send(start_line("somebody", 1, certificates_.issue("b"), "mutual"));
  EXPECT_THAT(
      liar->receive(),
      AllOf(StartsWith("error "), HasSubstr("its name is 'somebody', but its certificate is for"),
            HasSubstr("subject alternative names")));
}

TEST_F(Tls, FilesThatDoNotFitAreNamed) {
  sinew::TlsFiles files = certificates_.issue("a");
  files.key = certificates_.issue("b").key;
  const auto a = spawn();
  EXPECT_THAT(a->ask(start_line("a", 0, files, "mutual")), HasSubstr("is not the key of"));
  files.certificate = certificates_.path("missing.pem");
  EXPECT_THAT(a->ask(start_line("a", 0, files, "mutual")), HasSubstr("missing.pem"));
  const sinew::TlsFiles foreign = certificates_.issue("c", "", "other-ca");
  EXPECT_THAT(a->ask(start_line("a", 0, foreign, "mutual")),
              AllOf(StartsWith("error INVALID_ARGUMENT"), HasSubstr(foreign.certificate),
                    HasSubstr("is not signed by an authority in CA file")));
}

}  // namespace
