#include "sinew/rpc/planes/nccl/internal/messages.h"

#include <gtest/gtest.h>

#include <functional>

#include "sinew/nccl.pb.h"

namespace sinew::internal::nccl {
namespace {

template <class T>
T round_trip(const T& message) {
  const std::string bytes = encode({message});
  EXPECT_LE(bytes.size(), most_bytes(message));
  const auto messages = decode(bytes);
  EXPECT_TRUE(messages.ok()) << messages.status();
  return std::get<T>(messages->at(0));
}

TEST(NcclMessages, AreReadAsWrittenFromTheOtherEnd) {
  const Offer offer = round_trip(Offer{3, {1, 2}, {10, 0, kMaxTransferBytes - 10}});
  EXPECT_EQ(offer.ticket, 3u);
  EXPECT_EQ(offer.link.own_device, 2);
  EXPECT_EQ(offer.link.peer_device, 1);
  EXPECT_EQ(offer.sizes, (std::vector<std::uint64_t>{10, 0, kMaxTransferBytes - 10}));

  EXPECT_EQ(round_trip(Accept{4}).ticket, 4u);
  EXPECT_EQ(round_trip(Retract{5, Direction::kOutgoing}).direction, Direction::kIncoming);

  const End end = round_trip(End{6, Direction::kIncoming, absl::NotFoundError("what\x01")});
  EXPECT_EQ(end.ticket, 6u);
  EXPECT_EQ(end.direction, Direction::kOutgoing);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(end.status.message().find('\x01'), absl::string_view::npos);

  const Open open = round_trip(Open{{0, 5}, 9, 22809, std::string(128, '\xff')});
  EXPECT_EQ(open.link.own_device, 5);
  EXPECT_EQ(open.epoch, 9u);
  EXPECT_EQ(open.version, 22809);
  EXPECT_EQ(open.id, std::string(128, '\xff'));

  const Start start = round_trip(Start{{0, 5}, 9, 2, 77, Direction::kOutgoing});
  EXPECT_EQ(start.number, 2u);
  EXPECT_EQ(start.ticket, 77u);
  EXPECT_EQ(start.direction, Direction::kIncoming);

  for (const Cause cause : {Cause::kFailed, Cause::kStopped, Cause::kIncompatible}) {
    EXPECT_EQ(round_trip(Abort{{0, 5}, 9, cause, "why"}).cause, cause);
  }
}

TEST(NcclMessages, NonsenseIsRefused) {
  const std::vector<std::pair<std::string, std::function<void(proto::NcclMessage&)>>> cases{
      {"no body", [](auto& m) { m.clear_body(); }},
      {"no ticket", [](auto& m) { m.mutable_offer()->set_ticket(0); }},
      {"0 buffers", [](auto& m) { m.mutable_offer()->clear_sizes(); }},
      {"4097 buffers",
       [](auto& m) {
         for (int i = 0; i < kMaxBuffers; ++i) m.mutable_offer()->add_sizes(0);
       }},
      {"more bytes", [](auto& m) { m.mutable_offer()->add_sizes(kMaxTransferBytes); }},
      {"more bytes", [](auto& m) { m.mutable_offer()->add_sizes(~std::uint64_t{0}); }},
      {"a device that cannot be",
       [](auto& m) { m.mutable_offer()->mutable_link()->set_own_device(kMaxDevices); }},
      {"a device that cannot be",
       [](auto& m) { m.mutable_offer()->mutable_link()->set_your_device(~0u); }},
      {"no ticket", [](auto& m) { m.mutable_accept(); }},
      {"no ticket", [](auto& m) { m.mutable_retract(); }},
      {"no ticket", [](auto& m) { m.mutable_end()->set_code(5); }},
      {"code 0", [](auto& m) { m.mutable_end()->set_ticket(1); }},
      {"code 17",
       [](auto& m) {
         m.mutable_end()->set_ticket(1);
         m.mutable_end()->set_code(17);
       }},
      {"code -1",
       [](auto& m) {
         m.mutable_end()->set_ticket(1);
         m.mutable_end()->set_code(-1);
       }},
      {"no epoch", [](auto& m) { m.mutable_open()->set_id(std::string(128, 'x')); }},
      {"an id of 127 bytes",
       [](auto& m) {
         m.mutable_open()->set_epoch(1);
         m.mutable_open()->set_id(std::string(127, 'x'));
       }},
      {"no number", [](auto& m) { m.mutable_start()->set_epoch(1); }},
      {"no epoch", [](auto& m) { m.mutable_abort()->set_cause(proto::NcclAbort::FAILED); }},
      {"an unknown cause", [](auto& m) { m.mutable_abort()->set_epoch(1); }},
  };
  for (const auto& [text, change] : cases) {
    SCOPED_TRACE(text);
    proto::NcclNote note;
    proto::NcclMessage& message = *note.add_messages();
    message.mutable_offer()->set_ticket(1);
    message.mutable_offer()->add_sizes(1);
    ASSERT_TRUE(decode(note.SerializeAsString()).ok());
    change(message);
    const absl::Status status = decode(note.SerializeAsString()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
  }
  EXPECT_FALSE(decode("\xff\xff\xff").ok());
  EXPECT_TRUE(decode("").ok());
}

TEST(NcclMessages, ANoteKeepsTheirOrder) {
  const auto messages = decode(encode({Accept{3}, Accept{1}, Retract{2, Direction::kOutgoing}}));
  ASSERT_TRUE(messages.ok()) << messages.status();
  ASSERT_EQ(messages->size(), 3u);
  EXPECT_EQ(std::get<Accept>(messages->at(0)).ticket, 3u);
  EXPECT_EQ(std::get<Accept>(messages->at(1)).ticket, 1u);
  EXPECT_EQ(std::get<Retract>(messages->at(2)).ticket, 2u);
}

TEST(NcclMessages, TheLargestFitsIntoALane) {
  const Offer offer{~std::uint64_t{0},
                    {kMaxDevices - 1, kMaxDevices - 1},
                    std::vector<std::uint64_t>(kMaxBuffers, kMaxTransferBytes / kMaxBuffers)};
  EXPECT_LE(encode({offer}).size(), most_bytes(offer));
  EXPECT_LT(most_bytes(offer), std::size_t{64} << 10);
  const End end{~std::uint64_t{0}, Direction::kOutgoing,
                absl::NotFoundError(std::string(100000, 'x'))};
  EXPECT_LE(encode({end}).size(), most_bytes(end));
}

}  // namespace
}  // namespace sinew::internal::nccl
