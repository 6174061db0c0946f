#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/network/network_world.h"
#include "sinew/tests/support/eventual_value.h"

namespace sinew::testing {

/// Processes of test_worker on the hosts of a network of their own; skipped where there can be
/// none. They meet at host 1, in open membership unless they say otherwise.
class NetworkTest : public ::testing::Test {
 protected:
  using Child = std::unique_ptr<ChildProcess>;

  void SetUp() override {
    static const std::string missing = NetworkWorld::what_is_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  void make(int hosts) {
    world_.emplace(hosts);
    meet(absl::StrCat(NetworkWorld::address(1), ":29500"));
  }
  void meet(const std::string& place) { place_ = place; }
  NetworkWorld& world() { return *world_; }

  /// Its answer to that is yet to be received.
  Child begin(int host, const std::string& name, const std::string& more = "") const {
    auto child = std::make_unique<ChildProcess>(world_->on(host, {SINEW_TEST_WORKER}));
    child->send(absl::StrCat("start name=", name, " init=tcp://", place_,
                             " lease_ms=3000 network=trusted call_ms=20000 ", more));
    return child;
  }
  static void expect_members(ChildProcess& child, const std::string& names) {
    EXPECT_EVENTUALLY(child.ask("members"), "ok " + names);
  }
  static void expect_barrier(const std::vector<ChildProcess*>& all) {
    for (ChildProcess* child : all) child->send("barrier 20000");
    for (ChildProcess* child : all) EXPECT_THAT(child->receive(), ::testing::StartsWith("ok"));
  }

 private:
  std::optional<NetworkWorld> world_;
  std::string place_;
};

}  // namespace sinew::testing
