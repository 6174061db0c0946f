#include "sinew/rpc/membership/etcd/host_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/testing/eventually.h"

namespace sinew::internal::etcd {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;

HostLookup::Addresses look_up(const std::string& endpoint, bool prefers_ipv6 = false) {
  const auto lookup = HostLookup::start(endpoint);
  std::optional<HostLookup::Addresses> found;
  sinew::testing::eventually([&] { return (found = lookup->result(prefers_ipv6)).has_value(); });
  return found.value_or(absl::DeadlineExceededError("it is still looked up"));
}

TEST(HostLookupTest, LiteralsAreKnownAtOnce) {
  for (const char* literal : {"127.0.0.1:2379", "[::1]:2379"}) {
    for (const bool prefers_ipv6 : {false, true}) {
      const auto found = HostLookup::start(literal)->result(prefers_ipv6);
      ASSERT_TRUE(found.has_value());
      ASSERT_TRUE(found->ok()) << found->status();
      EXPECT_THAT(**found, ElementsAre(literal));
    }
  }
}

TEST(HostLookupTest, NamesAreLookedUpAsTheSystemDoes) {
  for (const bool prefers_ipv6 : {false, true}) {
    const HostLookup::Addresses found = look_up("localhost:2379", prefers_ipv6);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_FALSE(found->empty());
    // Of one kind.
    EXPECT_THAT(*found, AnyOf(Each("127.0.0.1:2379"), Each("[::1]:2379")));
  }
}

TEST(HostLookupTest, WhatNobodyKnowsIsSaid) {
  const HostLookup::Addresses found = look_up("no-such-host.invalid:2379");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable) << found.status();
  EXPECT_THAT(std::string(found.status().message()), ::testing::HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace sinew::internal::etcd
