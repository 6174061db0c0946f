#include "sinew/rpc/calls/envelope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/rpc.pb.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;

// A Note whose serialised form has exactly so many bytes.
std::string note_of(std::size_t bytes) {
  proto::Envelope envelope;
  std::string& body = *envelope.mutable_note()->mutable_body();
  body.resize(bytes, 'x');
  body.resize(bytes - (envelope.ByteSizeLong() - bytes));
  std::string text = envelope.SerializeAsString();
  EXPECT_EQ(text.size(), bytes);
  return text;
}

TEST(EnvelopeTest, TheLargestOneIsRead) {
  proto::Envelope envelope;
  const std::string bytes = note_of(kMaxEnvelopeBytes);
  EXPECT_TRUE(parse_envelope(bytes, envelope).ok());
  EXPECT_TRUE(envelope.has_note());
  EXPECT_TRUE(check_envelope_size(bytes).ok());
}

TEST(EnvelopeTest, OneByteMoreIsRefusedUnread) {
  proto::Envelope envelope;
  const std::string bytes = note_of(kMaxEnvelopeBytes + 1);
  const absl::Status refused = parse_envelope(bytes, envelope);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("67108865 bytes"));
  EXPECT_EQ(envelope.body_case(), proto::Envelope::BODY_NOT_SET);
  EXPECT_EQ(check_envelope_size(bytes).code(), absl::StatusCode::kResourceExhausted);
}

TEST(EnvelopeTest, GarbageIsRefused) {
  proto::Envelope envelope;
  EXPECT_EQ(parse_envelope("\xff\xff", envelope).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sinew::internal
