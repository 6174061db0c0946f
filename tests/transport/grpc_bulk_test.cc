// The bulk lane without gRPC: a sender and a receiver joined by hand.

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/rpc/transport/grpc/bulk/bulk_receiver.h"
#include "sinew/rpc/transport/grpc/bulk/bulk_sender.h"
#include "sinew/tests/transport/keeping_stream.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

struct Sender {
  Sender() { bulk.open(stream); }
  ~Sender() { bulk.close(); }

  /// The frame with its tickets, the transfers under way.
  PacketFrame send(std::vector<std::size_t> sizes) {
    PacketFrame frame;
    BulkSender::Transfers transfers;
    std::uint64_t number = bulk.reserve(sizes.size());
    for (const std::size_t size : sizes) {
      frame.payloads.emplace_back();
      frame.tickets.push_back({size, number});
      transfers.emplace_back(number++, absl::Cord(std::string(size, 'd')));
    }
    bulk.submit(std::move(transfers));
    return frame;
  }
  /// What leaves next; an empty packet when the sender waits.
  Packet next() {
    if (stream->packets.empty()) return {};
    Packet packet = std::move(stream->packets.front());
    stream->packets.pop_front();
    bulk.on_written();
    return packet;
  }

  std::shared_ptr<KeepingStream> stream =
      std::make_shared<KeepingStream>(StreamKind::kBulk, WriteEnd::kLater);
  BulkSender bulk{kChunkBytes};
};

TEST(GrpcBulk, SmallTransfersDoNotWaitForTheEndOfAHugeOne) {
  Sender sender;
  BulkReceiver receiver;
  auto huge = receiver.announce(Lane::kCalls, sender.send({std::size_t{100} << 20}));
  ASSERT_TRUE(huge.ok());
  ASSERT_TRUE(sender.bulk.on_granted(huge->granted).ok());
  ASSERT_TRUE(receiver.announce(Lane::kCalls, sender.send({std::size_t{2} << 20})).ok());
  std::vector<BulkReceiver::Completed> completed;
  int packets = 0;
  while (completed.empty() && packets < 20) {
    auto done = receiver.receive(sender.next().chunks);
    ASSERT_TRUE(done.ok()) << done.status();
    completed = *std::move(done);
    ++packets;
  }
  ASSERT_EQ(completed.size(), 1U);
  EXPECT_EQ(completed[0].frame.payloads[0].size(), std::size_t{2} << 20);
  EXPECT_LE(packets, 6);
}

TEST(GrpcBulk, ManySmallTransfersOfAFrameShareAPacket) {
  Sender sender;
  sender.send(std::vector<std::size_t>(100, 1000));
  EXPECT_EQ(sender.next().chunks.size(), 100U);
}

TEST(GrpcBulk, AFrameOfOneChunkLeavesInTwoHalves) {
  Sender sender;
  sender.send({kChunkBytes});
  const std::size_t first = sender.next().chunks.at(0).data.size();
  EXPECT_LT(first, kChunkBytes * 6 / 10);
  EXPECT_EQ(first + sender.next().chunks.at(0).data.size(), kChunkBytes);
  sender.send({std::size_t{100} << 10});
  EXPECT_EQ(sender.next().chunks.at(0).data.size(), std::size_t{100} << 10) << "small: in one";
}

TEST(GrpcBulk, SendsNoMoreThanAgreedBeforeTheTicketsAreRead) {
  Sender sender;
  std::vector<PacketFrame> frames;
  for (int i = 0; i < 40; ++i) frames.push_back(sender.send({std::size_t{1} << 20}));
  BulkReceiver receiver;
  std::size_t received = 0;
  for (Packet packet = sender.next(); !packet.chunks.empty(); packet = sender.next()) {
    for (const Chunk& chunk : packet.chunks) received += chunk.data.size();
    ASSERT_TRUE(receiver.receive(std::move(packet.chunks)).ok());
  }
  EXPECT_LE(received, kUnannouncedBytes);
  EXPECT_GT(received, kUnannouncedBytes / 2);
}

// A receiver that reads one ticket at a time, and the next one only when the frame before has been
// delivered, as if its thread had always something else to do. All must arrive, or both ends wait
// for ever.
TEST(GrpcBulk, EveryFrameArrivesThoughTicketsAreReadOneByOne) {
  for (const std::size_t size :
       {std::size_t{3} << 20, std::size_t{100} << 10, std::size_t{40} << 20}) {
    Sender sender;
    BulkReceiver receiver;
    std::deque<PacketFrame> tickets;
    constexpr int kFrames = 30;
    for (int i = 0; i < kFrames; ++i) tickets.push_back(sender.send({size, 5000}));
    int delivered = 0;
    bool waiting = false;
    for (int step = 0; step < 100'000 && delivered < kFrames; ++step) {
      if (!waiting && !tickets.empty()) {
        auto announced = receiver.announce(Lane::kCalls, std::move(tickets.front()));
        ASSERT_TRUE(announced.ok()) << announced.status();
        tickets.pop_front();
        ASSERT_TRUE(sender.bulk.on_granted(announced->granted).ok());
        waiting = !announced->completed;
        delivered += waiting ? 0 : 1;
        continue;
      }
      Packet packet = sender.next();
      ASSERT_FALSE(packet.chunks.empty()) << "stuck after " << delivered << " frames of " << size;
      auto completed = receiver.receive(std::move(packet.chunks));
      ASSERT_TRUE(completed.ok()) << completed.status();
      delivered += static_cast<int>(completed->size());
      if (!completed->empty()) waiting = false;
    }
    EXPECT_EQ(delivered, kFrames);
  }
}

Chunk chunk(std::uint64_t transfer, std::uint64_t size, std::uint64_t offset, std::size_t bytes) {
  return {transfer, size, offset, absl::Cord(std::string(bytes, 'c'))};
}

PacketFrame frame_with(std::uint64_t size, std::uint64_t transfer) {
  PacketFrame frame;
  frame.payloads.emplace_back();
  frame.tickets.push_back({size, transfer});
  return frame;
}

TEST(GrpcBulk, RefusesPiecesThatDoNotFit) {
  const std::vector<std::vector<Chunk>> wrong = {
      {chunk(1, 100, 10, 5)},                      // a gap at the beginning
      {chunk(1, 100, 0, 5), chunk(1, 100, 4, 5)},  // an overlap
      {chunk(1, 100, 0, 5), chunk(1, 101, 5, 5)},  // the size changes
      {chunk(2, kUnannouncedBytes * 2, 0, kUnannouncedBytes + 1)},
  };
  for (const std::vector<Chunk>& chunks : wrong) {
    BulkReceiver receiver;
    EXPECT_EQ(receiver.receive(chunks).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(receiver.receive({chunk(9, 5, 0, 1)}).ok()) << "it went on after a violation";
  }
}

TEST(GrpcBulk, PutsTogetherWhatComesBeforeAndAfterTheTicket) {
  std::string bytes(100'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 / 3);
  const auto piece = [&](std::size_t from, std::size_t to) {
    return Chunk{1, bytes.size(), from, absl::Cord(bytes.substr(from, to - from))};
  };
  BulkReceiver receiver;
  ASSERT_TRUE(receiver.receive({piece(0, 30'000), piece(30'000, 30'001)}).ok());
  ASSERT_TRUE(receiver.announce(Lane::kCalls, frame_with(bytes.size(), 1)).ok());
  auto none = receiver.receive({piece(30'001, 60'000)});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  auto completed = receiver.receive({piece(60'000, 100'000)});
  ASSERT_TRUE(completed.ok());
  ASSERT_EQ(completed->size(), 1U);
  const absl::Cord& payload = completed->front().frame.payloads.at(0);
  EXPECT_TRUE(payload == bytes);
  ASSERT_TRUE(payload.TryFlat().has_value());
  EXPECT_NE(ReceivePool::of_process().claim(*payload.TryFlat()), nullptr)
      << "whoever decodes it may keep the memory";
}

TEST(GrpcBulk, RefusesMoreThanWasAnnounced) {
  BulkReceiver receiver;
  ASSERT_TRUE(receiver.announce(Lane::kCalls, frame_with(100, 1)).ok());
  ASSERT_TRUE(receiver.receive({chunk(1, 100, 0, 60)}).ok());
  EXPECT_EQ(receiver.receive({chunk(1, 100, 60, 41)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(GrpcBulk, RefusesTicketsThatContradict) {
  BulkReceiver sizes;
  ASSERT_TRUE(sizes.receive({chunk(1, 100, 0, 5)}).ok());
  EXPECT_FALSE(sizes.announce(Lane::kCalls, frame_with(101, 1)).ok());
  BulkReceiver twice;
  ASSERT_TRUE(twice.announce(Lane::kCalls, frame_with(100, 1)).ok());
  EXPECT_FALSE(twice.announce(Lane::kCalls, frame_with(100, 1)).ok());
  BulkReceiver empty;
  EXPECT_FALSE(empty.announce(Lane::kCalls, frame_with(0, 1)).ok());
}

PacketFrame located_frame(std::uint64_t size, std::uint64_t transfer) {
  PacketFrame frame = frame_with(size, transfer);
  frame.tickets[0].plane = 1;
  frame.tickets[0].location = "there";
  return frame;
}

TEST(GrpcBulk, LocatedTransfersAreFetchedNotGranted) {
  BulkReceiver receiver;
  auto announced = receiver.announce(Lane::kCalls, located_frame(5, 1));
  ASSERT_TRUE(announced.ok());
  EXPECT_TRUE(announced->granted.empty());
  ASSERT_EQ(announced->to_fetch.size(), 1U);
  EXPECT_EQ(announced->to_fetch[0].size_bytes, 5U);
  EXPECT_EQ(announced->to_fetch[0].location, "there");
  auto completed = receiver.fetched(1, absl::Cord("bytes"));
  ASSERT_TRUE(completed.ok() && completed->has_value());
  EXPECT_EQ((*completed)->frame.payloads.at(0), "bytes");
}

TEST(GrpcBulk, WhatCannotBeFetchedMayComeInPieces) {
  BulkReceiver receiver;
  ASSERT_TRUE(receiver.announce(Lane::kCalls, located_frame(5, 1)).ok());
  EXPECT_TRUE(receiver.not_fetched(1));
  auto completed = receiver.receive({chunk(1, 5, 0, 5)});
  ASSERT_TRUE(completed.ok()) << completed.status();
  EXPECT_EQ(completed->size(), 1U);
}

TEST(GrpcBulk, RefusesPiecesOfWhatIsBeingFetched) {
  BulkReceiver during;
  ASSERT_TRUE(during.announce(Lane::kCalls, located_frame(5, 1)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(during.receive({chunk(1, 5, 0, 5)}).status()));
  BulkReceiver before;
  ASSERT_TRUE(before.receive({chunk(1, 5, 0, 4)}).ok());
  EXPECT_FALSE(before.announce(Lane::kCalls, located_frame(5, 1)).ok());
}

TEST(GrpcBulk, WhatIsFetchedTooLateIsDropped) {
  BulkReceiver receiver;
  ASSERT_TRUE(receiver.announce(Lane::kCalls, located_frame(5, 1)).ok());
  receiver.clear();
  EXPECT_TRUE(absl::IsCancelled(receiver.fetched(1, absl::Cord("bytes")).status()));
  EXPECT_FALSE(receiver.not_fetched(1));
}

TEST(GrpcBulk, RefusesGrantsThatNobodyAskedFor) {
  Sender sender;
  sender.send({1000});
  EXPECT_TRUE(sender.bulk.on_granted({1}).ok());
  EXPECT_FALSE(sender.bulk.on_granted({1}).ok());
  EXPECT_FALSE(sender.bulk.on_granted({77}).ok());
}

TEST(GrpcBulk, GrantsThatNobodyReadsAreBounded) {
  Sender sender;
  const std::vector<std::uint64_t> many(100'000, 1);
  absl::Status status;
  std::size_t queued = 0;
  while (status.ok() && queued < 100 * many.size()) {
    status = sender.bulk.grant(many);
    queued += many.size();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LE(queued, kMaxGrantsQueued + 2 * many.size() + kMaxGrantsPerPacket);
}

TEST(GrpcBulk, LargeEnvelopesTravelAsTransfersToo) {
  BulkReceiver receiver;
  PacketFrame frame;
  frame.envelope_ticket = {5, 3};
  frame.header = "header";
  frame.payloads.emplace_back("inline");
  auto announced = receiver.announce(Lane::kControl, std::move(frame));
  ASSERT_TRUE(announced.ok());
  auto completed = receiver.receive({chunk(3, 5, 0, 5)});
  ASSERT_TRUE(completed.ok());
  ASSERT_EQ(completed->size(), 1U);
  EXPECT_EQ((*completed)[0].lane, Lane::kControl);
  EXPECT_EQ((*completed)[0].frame.envelope, "ccccc");
  EXPECT_EQ((*completed)[0].frame.header, "header");
}

// A size that no memory has.
TEST(GrpcBulk, OfAFrameThatIsNotAdmittedNothingIsKept) {
  BulkReceiver receiver;
  auto announced =
      receiver.announce(Lane::kCalls, located_frame(5, 1), absl::ResourceExhaustedError("no"));
  ASSERT_TRUE(announced.ok()) << announced.status();
  ASSERT_EQ(announced->to_fetch.size(), 1U);
  EXPECT_TRUE(announced->to_fetch[0].is_lost);
  auto done = receiver.lost(1);
  ASSERT_TRUE(done.ok() && done->has_value());
  EXPECT_EQ((*done)->lost.message(), "no");

  PacketFrame frame = frame_with(100, 2);
  announced = receiver.announce(Lane::kCalls, std::move(frame), absl::ResourceExhaustedError("no"));
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_EQ(announced->granted.size(), 1U) << "its sender must get on";
  auto read = receiver.receive({chunk(2, 100, 0, 100)});
  ASSERT_TRUE(read.ok() && read->size() == 1);
  EXPECT_EQ(read->front().lost.message(), "no");
  EXPECT_TRUE(read->front().frame.payloads.empty());
}

constexpr std::uint64_t kTooMuch = std::uint64_t{1} << 60;

TEST(GrpcBulk, AFrameThatThereIsNoMemoryForIsReadToItsEndAndLost) {
  BulkReceiver receiver;
  PacketFrame frame;
  frame.header = "header";
  frame.payloads.resize(2);
  frame.tickets = {{kTooMuch, 1}, {std::uint64_t{100} << 10, 2}};
  const std::size_t whole = frame.size_bytes();
  auto announced = receiver.announce(Lane::kCalls, std::move(frame));
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_EQ(announced->granted.size(), 2U);

  static const char kNobodyReads = 0;
  const auto piece = [](std::uint64_t transfer, std::uint64_t size, std::uint64_t offset,
                        std::size_t bytes) {
    std::vector<Chunk> chunks(1);
    chunks[0] = {transfer, size, offset, absl::MakeCordFromExternal({&kNobodyReads, bytes}, [] {})};
    return chunks;
  };
  auto done = receiver.receive(piece(1, kTooMuch, 0, 1000));
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->empty());
  done = receiver.receive(piece(2, std::uint64_t{100} << 10, 0, std::size_t{100} << 10));
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->empty());
  done = receiver.receive(piece(1, kTooMuch, 1000, kTooMuch - 1000));
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_EQ(done->size(), 1U);
  const BulkReceiver::Completed& lost = done->front();
  EXPECT_EQ(lost.lost.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(lost.lost.message().find(absl::StrCat(kTooMuch)), absl::string_view::npos);
  EXPECT_EQ(lost.size_bytes, whole);
  EXPECT_EQ(lost.frame.header, "header");
  EXPECT_TRUE(lost.frame.payloads.empty());

  // Others arrive as ever.
  Sender sender;
  auto next = receiver.announce(Lane::kCalls, sender.send({1000}));
  ASSERT_TRUE(next.ok()) << next.status();
}

}  // namespace
}  // namespace sinew::internal
