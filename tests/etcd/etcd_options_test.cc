#include "sinew/rpc/membership/etcd/etcd_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sinew::internal::etcd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(EtcdUrl, HasEndpointsAndAPrefix) {
  const auto url = parse_etcd_url("etcd://a:1,[::1],10.0.0.1:2379/jobs/one/");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_THAT(url->endpoints, ElementsAre("a:1", "[::1]:2379", "10.0.0.1:2379"));
  EXPECT_EQ(url->prefix, "/jobs/one");
}

TEST(EtcdUrl, SaysWhatIsWrong) {
  EXPECT_THAT(std::string(parse_etcd_url("http://a/p").status().message()),
              HasSubstr("begin with etcd://"));
  EXPECT_THAT(std::string(parse_etcd_url("etcd://a").status().message()), HasSubstr("no prefix"));
  EXPECT_THAT(std::string(parse_etcd_url("etcd://a//").status().message()), HasSubstr("no prefix"));
  EXPECT_THAT(std::string(parse_etcd_url("etcd://a,,b/p").status().message()),
              HasSubstr("is empty"));
  EXPECT_THAT(std::string(parse_etcd_url("etcd://a:x/p").status().message()), HasSubstr("a:x"));
}

TEST(EtcdUrl, ShowsNoPassword) {
  const auto url = parse_etcd_url("etcd://user:secret@a:2379/p");
  EXPECT_THAT(std::string(url.status().message()), HasSubstr("no part of it"));
  EXPECT_THAT(std::string(url.status().message()), Not(HasSubstr("secret")));
}

TEST(EtcdOptions, StaysOnLoopbackWithoutTls) {
  EtcdOptions options;
  options.endpoints = {"127.0.0.1:1", "10.0.0.1:2379"};
  EXPECT_EQ(check(options).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(check(options).message()), HasSubstr("10.0.0.1:2379"));
  options.trusts_network = true;
  EXPECT_TRUE(check(options).ok());
  options.tls = EtcdTls{"ca.pem", "certificate.pem", ""};
  EXPECT_THAT(std::string(check(options).message()), HasSubstr("both or none"));
}

}  // namespace
}  // namespace sinew::internal::etcd
