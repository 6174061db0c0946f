// What the caller of a call is told of its failure, and how that travels.

#include "sinew/rpc/calls/served_error.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c10/util/Exception.h"
#include "sinew/rpc/calls/error_codec.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::exception_ptr error_of(ErrorOrigin origin, const std::string& method,
                            Execution execution = Execution::kDidNotRun) {
  ErrorInfo info;
  info.code = ErrorCode::kNotFound;
  info.message = "x";
  info.peer = method.empty() ? "" : "store";
  info.method = method;
  info.execution = execution;
  info.origin = origin;
  return make_error(std::move(info));
}

TEST(ServedErrorTest, WhereItAroseAndWhetherItRan) {
  struct Case {
    const char* what;
    std::exception_ptr error;
    ServedStage stage;
    ErrorOrigin origin;
    Execution execution;
  };
  using Stage = ServedStage;
  using Origin = ErrorOrigin;
  constexpr auto kNotRun = Execution::kDidNotRun;
  constexpr auto kPerhapsRun = Execution::kMayHaveRun;
  for (const Case& each : std::vector<Case>{
           {"refused", error_of(Origin::kCallee, ""), Stage::kBeforeMethod, Origin::kCallee,
            kNotRun},
           {"an argument is unreadable", error_of(Origin::kThisWorker, ""), Stage::kBeforeMethod,
            Origin::kCallee, kNotRun},
           {"a codec threw", std::make_exception_ptr(std::runtime_error("x")), Stage::kBeforeMethod,
            Origin::kCallee, kNotRun},
           {"a codec rejected", std::make_exception_ptr(Rejected(ErrorCode::kAborted, "x")),
            Stage::kBeforeMethod, Origin::kCallee, kNotRun},
           {"the object's constructor failed",
            error_of(Origin::kHandler, "app::Agent", kPerhapsRun), Stage::kBeforeMethod,
            Origin::kHandler, kPerhapsRun},
           {"thrown", std::make_exception_ptr(std::runtime_error("x")), Stage::kMethod,
            Origin::kHandler, kPerhapsRun},
           {"thrown number", std::make_exception_ptr(42), Stage::kMethod, Origin::kHandler,
            kPerhapsRun},
           {"thrown RpcError", error_of(Origin::kThisWorker, ""), Stage::kMethod, Origin::kHandler,
            kPerhapsRun},
           {"rejected", std::make_exception_ptr(Rejected(ErrorCode::kAborted, "x")), Stage::kMethod,
            Origin::kHandler, kNotRun},
           {"the result cannot travel", error_of(Origin::kCallee, ""), Stage::kMethod,
            Origin::kCallee, kPerhapsRun},
           {"nested: handler", error_of(Origin::kHandler, "app::find"), Stage::kMethod,
            Origin::kNestedCall, kPerhapsRun},
           {"nested: callee", error_of(Origin::kCallee, "app::find"), Stage::kMethod,
            Origin::kNestedCall, kPerhapsRun},
           {"nested: network", error_of(Origin::kNetwork, "app::find"), Stage::kMethod,
            Origin::kNestedCall, kPerhapsRun},
           {"nested: this worker", error_of(Origin::kThisWorker, "app::find"), Stage::kMethod,
            Origin::kNestedCall, kPerhapsRun},
           {"nested: a worker is lost", error_of(Origin::kNetwork, ""), Stage::kMethod,
            Origin::kNestedCall, kPerhapsRun},
       }) {
    SCOPED_TRACE(each.what);
    const ErrorInfo info = describe_served(each.error, each.stage);
    EXPECT_EQ(info.origin, each.origin);
    EXPECT_EQ(info.execution, each.execution);
    EXPECT_EQ(info.causes.size(), each.origin == Origin::kNestedCall ? 1u : 0u);
    EXPECT_EQ(info.peer, "");
    EXPECT_EQ(info.method, "");
  }
}

// A copy of what a handler said is not what the handler said.
TEST(ServedErrorTest, OnlyTheHandlerItselfRejects) {
  const auto rejected = std::make_exception_ptr(Rejected(ErrorCode::kUnavailable, "it drains"));
  const ErrorInfo first = describe_served(rejected, ServedStage::kMethod);
  EXPECT_EQ(first.code, ErrorCode::kUnavailable);
  EXPECT_EQ(first.message, "it drains");
  proto::Error sent;
  write_error(first, sent);
  const ErrorInfo received = read_error(sent, "store", "app::find");
  EXPECT_EQ(received.execution, Execution::kDidNotRun);
  EXPECT_EQ(received.origin, ErrorOrigin::kHandler);
  // The outer handler lets it pass.
  const ErrorInfo second = describe_served(make_error(received), ServedStage::kMethod);
  EXPECT_EQ(second.execution, Execution::kMayHaveRun);
  EXPECT_EQ(second.origin, ErrorOrigin::kNestedCall);
}

TEST(ServedErrorTest, CallsKeepWhereItBegan) {
  std::exception_ptr error = std::make_exception_ptr(std::runtime_error("the disk is full"));
  for (int i = 0; i < 20; ++i) {
    proto::Error sent;
    write_error(describe_served(error, ServedStage::kMethod), sent);
    error = make_error(read_error(sent, "worker" + std::to_string(i), "method"));
  }
  const ErrorInfo info = describe(error);
  EXPECT_EQ(info.remote_message, "the disk is full");
  EXPECT_EQ(info.origin, ErrorOrigin::kNestedCall);
  EXPECT_EQ(info.peer, "worker19");
  ASSERT_EQ(info.causes.size(), 16u);
  EXPECT_EQ(info.causes.front().peer, "worker18");
  EXPECT_EQ(info.causes.back().peer, "worker3");
}

TEST(ServedErrorTest, TravelsUnchanged) {
  ErrorInfo info;
  info.code = ErrorCode::kAborted;
  info.message = "text";
  info.execution = Execution::kMayHaveRun;
  info.type_name = "app::Error";
  info.remote_message = "own text";
  info.origin = ErrorOrigin::kNestedCall;
  for (const ErrorOrigin origin :
       {ErrorOrigin::kNestedCall, ErrorOrigin::kThisWorker, ErrorOrigin::kNetwork,
        ErrorOrigin::kCallee, ErrorOrigin::kHandler}) {
    info.causes.push_back({"peer", "method", origin});
  }
  proto::Error sent;
  write_error(info, sent);
  const ErrorInfo read = read_error(sent, "p", "m");
  EXPECT_EQ(read.code, info.code);
  EXPECT_EQ(read.message, info.message);
  EXPECT_EQ(read.execution, info.execution);
  EXPECT_EQ(read.type_name, info.type_name);
  EXPECT_EQ(read.remote_message, info.remote_message);
  EXPECT_EQ(read.origin, info.origin);
  EXPECT_EQ(read.peer, "p");
  EXPECT_EQ(read.method, "m");
  ASSERT_EQ(read.causes.size(), info.causes.size());
  for (std::size_t i = 0; i < read.causes.size(); ++i) {
    EXPECT_EQ(read.causes[i].origin, info.causes[i].origin) << i;
    EXPECT_EQ(read.causes[i].peer, "peer");
    EXPECT_EQ(read.causes[i].method, "method");
  }
}

TEST(ServedErrorTest, WhatAPeerSaysIsChecked) {
  proto::Error said;
  EXPECT_EQ(read_error(said, "p", "m").origin, ErrorOrigin::kCallee);
  for (const proto::ErrorOrigin origin :
       {proto::ORIGIN_CALLER, proto::ORIGIN_NETWORK, static_cast<proto::ErrorOrigin>(99)}) {
    said.set_origin(origin);
    EXPECT_EQ(read_error(said, "p", "m").origin, ErrorOrigin::kCallee);
  }
  // Only nested calls have causes.
  said.set_origin(proto::ORIGIN_HANDLER);
  said.add_causes()->set_worker("w");
  EXPECT_TRUE(read_error(said, "p", "m").causes.empty());
  said.set_origin(proto::ORIGIN_NESTED_CALL);
  for (int i = 0; i < 1000; ++i) {
    said.add_causes()->set_worker(std::string(10000, 'w') + "\x1b");
  }
  const ErrorInfo read = read_error(said, "p", "m");
  ASSERT_EQ(read.causes.size(), 16u);
  EXPECT_LT(read.causes[5].peer.size(), 600u);
  said.mutable_causes(0)->set_worker("w\x1b[31m");
  EXPECT_EQ(read_error(said, "p", "m").causes[0].peer, "w\\x1b[31m");
}

TEST(ServedErrorTest, ErrorsOfLibTorchHaveTheirTextOnly) {
  const auto thrown = [](const auto& run) {
    try {
      run();
    } catch (...) {
      return describe_served(std::current_exception(), ServedStage::kMethod);
    }
    return ErrorInfo();
  };
  const ErrorInfo plain = thrown([] { TORCH_CHECK(false, "sizes ", 3, " and ", 4, " differ"); });
  EXPECT_EQ(plain.type_name, "c10::Error");
  EXPECT_EQ(plain.message, "c10::Error: sizes 3 and 4 differ");
  EXPECT_EQ(plain.remote_message, "sizes 3 and 4 differ");
  EXPECT_EQ(plain.code, ErrorCode::kUnknown);
  const ErrorInfo internal = thrown([] { TORCH_INTERNAL_ASSERT(false, "a bug"); });
  EXPECT_THAT(internal.message, HasSubstr("a bug"));
  EXPECT_THAT(internal.message, Not(HasSubstr("frame #0")));
  EXPECT_EQ(thrown([] { TORCH_CHECK_INDEX(false, "9 of 3"); }).code, ErrorCode::kOutOfRange);
  EXPECT_EQ(thrown([] { TORCH_CHECK_VALUE(false, "-1"); }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(thrown([] { TORCH_CHECK_TYPE(false, "int"); }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(thrown([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "later"); }).code,
            ErrorCode::kUnimplemented);
}

}  // namespace
}  // namespace sinew::internal
