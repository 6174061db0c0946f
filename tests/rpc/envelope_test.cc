#include "sinew/rpc/calls/envelope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/rpc.pb.h"
#include "sinew/rpc/wire/bounded_parse.h"
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
  EXPECT_TRUE(check_envelope_size(bytes, proto::Envelope::default_instance()).ok());
}

TEST(EnvelopeTest, OneByteMoreIsRefusedUnread) {
  proto::Envelope envelope;
  const std::string bytes = note_of(kMaxEnvelopeBytes + 1);
  const absl::Status refused = parse_envelope(bytes, envelope);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("67108865 bytes"));
  EXPECT_EQ(envelope.body_case(), proto::Envelope::BODY_NOT_SET);
  EXPECT_EQ(check_envelope_size(bytes, proto::Envelope::default_instance()).code(),
            absl::StatusCode::kResourceExhausted);
}

// Protobuf writes nothing then.
TEST(EnvelopeTest, MoreThanProtobufWritesIsRefused) {
  const absl::Status refused = check_envelope_size("", proto::Envelope::default_instance());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 GiB"));
}

TEST(EnvelopeTest, TooManyValuesAreRefusedByBothEnds) {
  // Without the null values that it may have beside the call, its argument and the list.
  proto::Envelope envelope;
  proto::ValueList& list = *envelope.mutable_call()->add_arguments()->mutable_list();
  for (std::size_t i = 0; i < kMaxMessageParts - 3; ++i) list.add_items();
  const std::string most = envelope.SerializeAsString();
  list.add_items();
  const std::string bytes = envelope.SerializeAsString();
  EXPECT_TRUE(check_envelope_size(most, proto::Envelope::default_instance()).ok());
  EXPECT_TRUE(parse_envelope(most, envelope).ok());
  const absl::Status told = check_envelope_size(bytes, proto::Envelope::default_instance());
  EXPECT_EQ(told.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(told.message()), HasSubstr("as vectors of integers or reals"));
  proto::Envelope refused;
  EXPECT_EQ(parse_envelope(bytes, refused).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.body_case(), proto::Envelope::BODY_NOT_SET);
}

TEST(EnvelopeTest, GarbageIsRefused) {
  proto::Envelope envelope;
  EXPECT_EQ(parse_envelope("\xff\xff", envelope).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sinew::internal
