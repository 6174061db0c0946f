#include "sinew/rpc/membership/etcd/endpoints.h"

#include <gtest/gtest.h>

namespace sinew::internal::etcd {
namespace {

EtcdOptions three() {
  EtcdOptions options;
  options.endpoints = {"a:1", "b:1", "c:1"};
  options.first_pause = std::chrono::milliseconds(20);
  options.longest_pause = std::chrono::milliseconds(50);
  return options;
}

TEST(Endpoints, TheNextOneIsAskedAtOnce) {
  Endpoints endpoints(three(), 4);
  EXPECT_EQ(endpoints.current(), "b:1");
  EXPECT_EQ(endpoints.failed(), Time(0));
  EXPECT_EQ(endpoints.current(), "c:1");
}

TEST(Endpoints, PausesGrowWithTheRounds) {
  Endpoints endpoints(three(), 0);
  const auto round = [&] {
    endpoints.failed();
    endpoints.failed();
    return endpoints.failed();
  };
  EXPECT_EQ(round(), std::chrono::milliseconds(20));
  EXPECT_EQ(round(), std::chrono::milliseconds(40));
  EXPECT_EQ(round(), std::chrono::milliseconds(50));
  EXPECT_EQ(round(), std::chrono::milliseconds(50));
  endpoints.answered();
  EXPECT_EQ(endpoints.failed(), Time(0));
  EXPECT_EQ(endpoints.failed(), Time(0));
  EXPECT_EQ(endpoints.failed(), std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace sinew::internal::etcd
