#include "sinew/rpc/base/loopback.h"

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

TEST(Loopback, IsAsWritten) {
  for (const char* host :
       {"127.0.0.1", "127.0.1.1", "127.255.0.3", "::1", "localhost", "LocalHost"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
    EXPECT_TRUE(leads_to_loopback(host)) << host;
  }
  for (const char* host : {"10.0.0.1", "128.0.0.1", "::", "0.0.0.0", "fe80::1", "alpha", ""}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(Loopback, LiteralsOfOthersLeadElsewhere) {
  for (const char* host : {"10.0.0.1", "192.0.2.7", "2001:db8::1"}) {
    EXPECT_FALSE(leads_to_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace sinew::internal
