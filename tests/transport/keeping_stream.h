#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "sinew/rpc/transport/grpc/connection/lane_stream.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"

namespace sinew::internal {

class NoEvents final : public StreamEvents {
 public:
  void on_read(StreamKind, grpc::ByteBuffer) override {}
  void on_written(StreamKind) override {}
  void on_ended(StreamKind, const absl::Status&, bool) override {}
};

/// Keeps what is written. Each write ends at once, or never by itself.
class KeepingStream final : public LaneStream {
 public:
  KeepingStream(StreamKind kind, WriteEnd end)
      : LaneStream(kind, AfterEnd::kNoReads, std::make_shared<NoEvents>()), end_(end) {}
  std::deque<Packet> packets;

 private:
  std::optional<bool> issue_write(const grpc::ByteBuffer& message, WriteMode) override {
    absl::StatusOr<Packet> packet = decode_packet(message, {});
    EXPECT_TRUE(packet.ok()) << packet.status();
    if (packet.ok()) packets.push_back(*std::move(packet));
    if (end_ == WriteEnd::kLater) return std::nullopt;
    return true;
  }
  void issue_read(grpc::ByteBuffer*) override {}
  void issue_end(const EndState&) override {}

  const WriteEnd end_;
};

}  // namespace sinew::internal
