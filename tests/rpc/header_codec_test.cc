#include "sinew/rpc/link/header_codec.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/link.pb.h"
#include "sinew/rpc/link/frame_numbers.h"
#include "sinew/rpc/transport/frame.h"

namespace sinew::internal {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

/// What protobuf's own code reads out of the bytes.
proto::LinkHeader read_by_protobuf(const std::string& bytes) {
  proto::LinkHeader message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

std::string bytes_of(const LinkHeader& header) {
  return std::string(absl::string_view(write_header(header)));
}

std::vector<std::uint64_t> numbers_of(const NumberRanges& ranges) {
  std::vector<std::uint64_t> numbers;
  for (const NumberRange& range : ranges) numbers.insert(numbers.end(), {range.first, range.last});
  return numbers;
}

template <class Numbers>
std::vector<std::uint64_t> numbers_of(const Numbers& numbers) {
  return {numbers.begin(), numbers.end()};
}

void expect_same(const LinkHeader& header, const proto::LinkHeader& message) {
  EXPECT_EQ(static_cast<int>(header.kind), static_cast<int>(message.kind()));
  EXPECT_EQ(header.number, message.number());
  EXPECT_EQ(header.subject, message.subject());
  EXPECT_EQ(static_cast<std::uint64_t>(header.time_left.count() + 1), message.time_left_us());
  EXPECT_EQ(header.is_void, message.is_void());
  EXPECT_EQ(header.bytes, message.bytes());
  EXPECT_EQ(numbers_of(header.received[0]), numbers_of(message.received_control()));
  EXPECT_EQ(numbers_of(header.received[1]), numbers_of(message.received_calls()));
  EXPECT_EQ(header.returned_frames, message.returned_frames());
  EXPECT_EQ(header.returned_bytes, message.returned_bytes());
  EXPECT_EQ(header.beat, message.beat());
  EXPECT_EQ(header.beat_reply, message.beat_reply());
  EXPECT_EQ(header.is_goodbye, message.is_goodbye());
}

LinkHeader full_header() {
  LinkHeader header;
  header.kind = FrameKind::kReply;
  header.number = 300;
  header.subject = kMost;
  header.time_left = std::chrono::seconds(60);
  header.is_void = true;
  header.bytes = 1 << 20;
  header.received[0] = {{1, 1}};
  header.received[1] = {{2, 2}, {5, 700}, {kMost - 1, kMost}};
  header.returned_frames = 127;
  header.returned_bytes = 128;
  header.beat = 7;
  header.beat_reply = 6;
  header.is_goodbye = true;
  return header;
}

absl::Status status_of(const std::string& bytes) {
  LinkHeader header;
  return read_header(bytes, header);
}

TEST(HeaderCodec, WritesWhatProtobufReads) {
  expect_same(full_header(), read_by_protobuf(bytes_of(full_header())));
  expect_same(LinkHeader(), read_by_protobuf(bytes_of(LinkHeader())));
  EXPECT_TRUE(bytes_of(LinkHeader()).empty());
}

TEST(HeaderCodec, ReadsWhatItHasWritten) {
  LinkHeader read;
  ASSERT_TRUE(read_header(bytes_of(full_header()), read).ok());
  expect_same(read, read_by_protobuf(bytes_of(full_header())));
}

TEST(HeaderCodec, ReadsWhatProtobufWrites) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; ++round) {
    // Of all sizes, and often absent.
    const auto any = [&random]() -> std::uint64_t {
      return random() % 3 == 0 ? 0 : random() >> (random() % 64);
    };
    proto::LinkHeader message;
    message.set_kind(static_cast<proto::FrameKind>(1 + random() % 3));
    message.set_number(1 + any() / 2);
    message.set_subject(any());
    message.set_time_left_us(any() % 1000000000);
    message.set_is_void(random() % 2 == 0);
    message.set_bytes(any());
    for (std::uint64_t i = random() % 4; i > 0; --i) {
      const std::uint64_t first = 1 + any() / 2;
      message.add_received_calls(first);
      message.add_received_calls(first + any() / 4);
    }
    message.set_returned_frames(any());
    message.set_returned_bytes(any());
    message.set_beat(any());
    message.set_beat_reply(any());
    message.set_is_goodbye(random() % 2 == 0);
    LinkHeader header;
    ASSERT_TRUE(read_header(message.SerializeAsString(), header).ok());
    expect_same(header, message);
  }
}

TEST(HeaderCodec, MostReceiptsFit) {
  LinkHeader header;
  for (NumberRanges& ranges : header.received) {
    for (std::uint64_t i = 0; i < FrameNumbers::kMaxReported; ++i) {
      ranges.push_back({kMost - 2 * i - 1, kMost - 2 * i});
    }
  }
  const std::string bytes = bytes_of(header);
  EXPECT_LE(bytes.size(), kMaxHeaderBytes);
  EXPECT_TRUE(status_of(bytes).ok());
}

TEST(HeaderCodec, TimeLeftIsBounded) {
  proto::LinkHeader message;
  message.set_time_left_us(kMost);
  LinkHeader header;
  ASSERT_TRUE(read_header(message.SerializeAsString(), header).ok());
  EXPECT_EQ(header.time_left, std::chrono::hours(365 * 24));
}

TEST(HeaderCodec, RefusesWhatNoWorkerWrites) {
  const auto refused = [](const char* what, const std::string& bytes) {
    EXPECT_EQ(status_of(bytes).code(), absl::StatusCode::kInvalidArgument) << what;
  };
  refused("a kind that there is not", {"\x08\x04", 2});
  refused("a call without a number", {"\x08\x01", 2});
  refused("a number that nothing has", {"\x10\x01", 2});
  refused("a field that there is not", {"\x78\x01", 2});
  refused("a field of another type", {"\x12\x01\x01", 3});
  refused("no field", {"\x00\x00", 2});
  refused("ranges that end in the middle", {"\x42\x01\x05", 3});
  refused("a range that ends before it begins", {"\x42\x02\x05\x04", 4});
  refused("a range that begins at 0", {"\x42\x02\x00\x04", 4});
  refused("ranges that end behind the header", {"\x42\x03\x01\x02", 4});
  refused("ranges of the size of a memory", {"\x42\xff\xff\xff\xff\x0f\x01\x02", 8});
  refused("receipts said twice", {"\x42\x02\x01\x02\x42\x02\x04\x05", 8});
  refused("a number that does not end", {"\x58\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12});
  refused("too much", std::string(kMaxHeaderBytes + 1, '\0'));
}

TEST(HeaderCodec, AnyPieceOfAHeaderIsReadOrRefused) {
  const std::string whole = bytes_of(full_header());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // Of its own memory, so that a sanitizer sees a byte too many.
    (void)status_of(whole.substr(0, size));
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[size] = static_cast<char>(changed[size] ^ (1 << bit));
      (void)status_of(changed);
    }
  }
}

}  // namespace
}  // namespace sinew::internal
