// What the status of a client's failed call holds of the error.

#include "sinew/rpc/transport/grpc/connection/grpc_status.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/standard/google/rpc/status.pb.h"

namespace sinew::internal {
namespace {

using ::testing::StartsWith;

// What a peer accepts of trailers, less a text and what is written around both, as base64.
constexpr std::size_t kMostBytes = 3000;

proto::Error error_in_details(const proto::Error& error) {
  absl::Status status(static_cast<absl::StatusCode>(error.code()), error.message());
  status.SetPayload(kErrorPayload, absl::Cord(error.SerializeAsString()));
  const grpc::Status sent = to_grpc(status);
  EXPECT_EQ(sent.error_code(), error.code());
  EXPECT_LT(sent.error_details().size(), kMostBytes);
  standard::google::rpc::Status details;
  proto::Error read;
  EXPECT_TRUE(details.ParseFromString(sent.error_details()));
  if (details.details_size() != 1) {
    ADD_FAILURE() << details.details_size() << " details";
    return read;
  }
  EXPECT_EQ(details.details(0).type_url(), kErrorPayload);
  EXPECT_TRUE(read.ParseFromString(details.details(0).value()));
  return read;
}

proto::Error error_of_nested_calls(int calls, std::size_t name_bytes) {
  proto::Error error;
  error.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  error.set_message("no such key");
  error.set_execution(proto::MAY_HAVE_RUN);
  error.set_origin(proto::ORIGIN_NESTED_CALL);
  error.set_type_name("app::NoSuchKey");
  error.set_remote_message(std::string(16384, 'x'));
  for (int i = 0; i < calls; ++i) {
    proto::FailedCall& cause = *error.add_causes();
    cause.set_worker(absl::StrCat("worker", i));
    cause.set_method(absl::StrCat("method", i, std::string(name_bytes, 'm')));
    cause.set_origin(i + 1 < calls ? proto::ORIGIN_NESTED_CALL : proto::ORIGIN_HANDLER);
  }
  return error;
}

TEST(GrpcStatusTest, HoldsWhatIsKnownOfAnError) {
  const proto::Error read = error_in_details(error_of_nested_calls(3, 10));
  EXPECT_EQ(read.origin(), proto::ORIGIN_NESTED_CALL);
  EXPECT_EQ(read.type_name(), "app::NoSuchKey");
  ASSERT_EQ(read.causes_size(), 3);
  EXPECT_EQ(read.causes(2).origin(), proto::ORIGIN_HANDLER);
  EXPECT_THAT(read.remote_message(), StartsWith("xxxxx"));
}

TEST(GrpcStatusTest, OfTooManyCallsTheEndsAreKept) {
  const proto::Error read = error_in_details(error_of_nested_calls(16, 490));
  EXPECT_EQ(read.type_name(), "app::NoSuchKey");
  ASSERT_GE(read.causes_size(), 2);
  EXPECT_LT(read.causes_size(), 16);
  EXPECT_EQ(read.causes(0).worker(), "worker0");
  EXPECT_EQ(read.causes(read.causes_size() - 1).worker(), "worker15");
  EXPECT_EQ(read.causes(read.causes_size() - 1).origin(), proto::ORIGIN_HANDLER);
}

}  // namespace
}  // namespace sinew::internal
