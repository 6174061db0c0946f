#include "sinew/rpc/membership/etcd/etcd_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sinew::internal::etcd {
namespace {

using ::testing::HasSubstr;

Failure explain(absl::StatusCode code, const std::string& words) {
  EtcdOptions options;
  options.endpoints = {"a:1"};
  return explain_error(absl::Status(code, words), "a:1", options);
}

TEST(EtcdErrors, NameTheServerAndWhatToDo) {
  const Failure full =
      explain(absl::StatusCode::kResourceExhausted, "etcdserver: mvcc: database space exceeded");
  EXPECT_EQ(full.remedy, Remedy::kNone);
  EXPECT_EQ(full.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.status.message()),
              HasSubstr("etcd at a:1 is out of quota (NOSPACE alarm)"));
  const Failure password =
      explain(absl::StatusCode::kInvalidArgument,
              "etcdserver: authentication failed, invalid user ID or password");
  EXPECT_EQ(password.status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(password.status.message()),
              HasSubstr("does not take this user and password"));
}

TEST(EtcdErrors, WhatAnotherServerMayServeIsAskedThere) {
  EXPECT_EQ(explain(absl::StatusCode::kUnavailable, "etcdserver: no leader").remedy,
            Remedy::kOtherServer);
  EXPECT_EQ(explain(absl::StatusCode::kUnavailable, "connections to all backends failing").remedy,
            Remedy::kOtherServer);
  EXPECT_EQ(explain(absl::StatusCode::kDeadlineExceeded, "Deadline Exceeded").remedy,
            Remedy::kOtherServer);
  EXPECT_EQ(explain(absl::StatusCode::kUnimplemented, "").status.code(),
            absl::StatusCode::kNotFound);
}

TEST(EtcdErrors, TokensAreRenewed) {
  EXPECT_EQ(explain(absl::StatusCode::kUnauthenticated, "etcdserver: invalid auth token").remedy,
            Remedy::kAuthenticate);
}

TEST(EtcdErrors, OthersAreAnswers) {
  const Failure lease =
      explain(absl::StatusCode::kNotFound, "etcdserver: requested lease not found");
  EXPECT_EQ(lease.remedy, Remedy::kNone);
  EXPECT_EQ(lease.status.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sinew::internal::etcd
