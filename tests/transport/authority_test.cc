#include "sinew/rpc/transport/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sinew::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

/// Whether a worker with that certificate starts where those authorities count.
absl::Status check(const TlsPem& pem, const std::string& authority) {
  return Credentials::mutual_tls(TlsPem{authority, pem.certificate, pem.key}).check();
}

TEST(AuthorityTest, IssuesWhatItsJobTakes) {
  const auto authority = Authority::make("a job/1", 30);
  ASSERT_TRUE(authority.ok()) << authority.status();
  const auto pem = authority->issue({"worker.1", {"alpha", "10.0.0.7", "::1"}}, 7);
  ASSERT_TRUE(pem.ok()) << pem.status();
  EXPECT_TRUE(check(*pem, authority->certificate()).ok());
  EXPECT_THAT(*describe_certificate(pem->certificate),
              AllOf(HasSubstr("subject: CN = worker.1"), HasSubstr("of job a job/1"),
                    HasSubstr("DNS:worker.1, URI:sinew:job/a%20job%2F1, DNS:alpha, IP "
                              "Address:10.0.0.7, IP Address:0:0:0:0:0:0:0:1")));
  const auto again = Authority::load(authority->certificate(), authority->key());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job(), "a job/1");
  const auto other = again->issue({"other", {}}, 7);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(check(*other, authority->certificate()).ok());
  const auto stranger = Authority::make("a job/1", 30);
  EXPECT_EQ(check(*other, stranger->certificate()).code(), absl::StatusCode::kInvalidArgument);
}

TEST(AuthorityTest, AllWhoKnowATokenHaveTheSameOne) {
  const auto here = Authority::of_token(kToken, "job");
  const auto there = Authority::of_token(kToken, "job");
  const auto other_token = Authority::of_token("0123456789abcdeg", "job");
  const auto other_job = Authority::of_token(kToken, "another");
  ASSERT_TRUE(here.ok() && there.ok() && other_token.ok() && other_job.ok());
  const auto pem = here->issue({"worker", {"localhost"}}, 7);
  ASSERT_TRUE(pem.ok()) << pem.status();
  EXPECT_TRUE(check(*pem, there->certificate()).ok());
  EXPECT_FALSE(check(*pem, other_token->certificate()).ok());
  EXPECT_FALSE(check(*pem, other_job->certificate()).ok());
}

TEST(AuthorityTest, WhatCannotBeANameIsRefused) {
  const auto authority = Authority::make("job", 30);
  ASSERT_TRUE(authority.ok()) << authority.status();
  for (const char* worker : {"", "a,DNS:b", "a b", "a/b"}) {
    EXPECT_FALSE(authority->issue({worker, {}}, 7).ok()) << worker;
  }
  for (const char* host : {"", "alpha,DNS:beta", "alpha:29500", "a b", "a/b", "a\nb"}) {
    EXPECT_FALSE(authority->issue({"worker", {host}}, 7).ok()) << host;
  }
  EXPECT_FALSE(authority->issue({"worker", {}}, 0).ok());
  EXPECT_FALSE(Authority::make("job", -1).ok());
}

TEST(AuthorityTest, WhatIsNoneIsNotLoaded) {
  const auto one = Authority::make("job", 30);
  const auto other = Authority::make("job", 30);
  const auto leaf = one->issue({"worker", {}}, 7);
  const auto text_of = [](const absl::StatusOr<Authority>& loaded) {
    return std::string(loaded.status().message());
  };
  EXPECT_THAT(text_of(Authority::load("no text", one->key())), HasSubstr("no certificate in PEM"));
  EXPECT_THAT(text_of(Authority::load(one->certificate(), "no key")), HasSubstr("its key is none"));
  EXPECT_THAT(text_of(Authority::load(one->certificate(), other->key())),
              HasSubstr("not that of its certificate"));
  EXPECT_FALSE(describe_certificate("no text").ok());
}

}  // namespace
}  // namespace sinew::internal
