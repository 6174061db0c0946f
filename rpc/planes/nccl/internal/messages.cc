#include "sinew/rpc/planes/nccl/internal/messages.h"

#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/nccl.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/planes/nccl/nccl_api.h"

namespace sinew::internal::nccl {
namespace {

constexpr std::size_t kMaxReasonBytes = 1024;

absl::Status wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("a message of an NCCL plane has ", what));
}

void write(LinkKey link, proto::NcclLink& out) {
  out.set_own_device(static_cast<std::uint32_t>(link.own_device));
  out.set_your_device(static_cast<std::uint32_t>(link.peer_device));
}

struct Writer {
  proto::NcclMessage& out;

  void operator()(const Offer& m) const {
    proto::NcclOffer& body = *out.mutable_offer();
    body.set_ticket(m.ticket);
    write(m.link, *body.mutable_link());
    for (std::uint64_t size : m.sizes) body.add_sizes(size);
    body.set_ready(m.ready);
  }
  void operator()(const Ready& m) const { out.mutable_ready()->set_ticket(m.ticket); }
  void operator()(const Done& m) const { out.mutable_done()->set_ticket(m.ticket); }
  void operator()(const Accept& m) const { out.mutable_accept()->set_ticket(m.ticket); }
  void operator()(const Retract& m) const {
    out.mutable_retract()->set_ticket(m.ticket);
    out.mutable_retract()->set_is_mine(m.direction == Direction::kOutgoing);
  }
  void operator()(const End& m) const {
    proto::NcclEnd& body = *out.mutable_end();
    body.set_ticket(m.ticket);
    body.set_is_mine(m.direction == Direction::kOutgoing);
    body.set_code(static_cast<int>(m.status.code()));
    body.set_reason(printable(std::string(m.status.message()), kMaxReasonBytes));
  }
  void operator()(const Open& m) const {
    proto::NcclOpen& body = *out.mutable_open();
    write(m.link, *body.mutable_link());
    body.set_epoch(m.epoch);
    body.set_version(m.version);
    body.set_id(m.id);
  }
  void operator()(const Start& m) const {
    proto::NcclStart& body = *out.mutable_start();
    write(m.link, *body.mutable_link());
    body.set_epoch(m.epoch);
    body.set_number(m.number);
    body.set_ticket(m.ticket);
    body.set_is_mine(m.direction == Direction::kOutgoing);
  }
  void operator()(const Abort& m) const {
    proto::NcclAbort& body = *out.mutable_abort();
    write(m.link, *body.mutable_link());
    body.set_epoch(m.epoch);
    body.set_cause(m.cause == Cause::kFailed    ? proto::NcclAbort::FAILED
                   : m.cause == Cause::kStopped ? proto::NcclAbort::STOPPED
                                                : proto::NcclAbort::INCOMPATIBLE);
    body.set_reason(printable(m.reason, kMaxReasonBytes));
  }
};

absl::StatusOr<LinkKey> read(const proto::NcclLink& link) {
  if (link.own_device() >= kMaxDevices || link.your_device() >= kMaxDevices) {
    return wrong("a device that cannot be");
  }
  return LinkKey{static_cast<int>(link.your_device()), static_cast<int>(link.own_device())};
}

// The sender's own is the receiver's incoming.
Direction read_direction(bool is_mine) {
  return is_mine ? Direction::kIncoming : Direction::kOutgoing;
}

absl::StatusOr<Message> read(const proto::NcclOffer& body) {
  auto link = read(body.link());
  if (!link.ok()) return link.status();
  if (body.ticket() == 0) return wrong("no ticket");
  if (body.sizes_size() == 0 || body.sizes_size() > kMaxBuffers) {
    return wrong(absl::StrCat(body.sizes_size(), " buffers"));
  }
  std::uint64_t total = 0;
  for (std::uint64_t size : body.sizes()) {
    if (size > kMaxTransferBytes - total) return wrong("more bytes than a device holds");
    total += size;
  }
  return Offer{body.ticket(), *link, {body.sizes().begin(), body.sizes().end()}, body.ready()};
}

absl::StatusOr<Message> read(const proto::NcclEnd& body) {
  if (body.ticket() == 0) return wrong("no ticket");
  const bool known =
      body.code() > 0 && body.code() <= static_cast<int>(ErrorCode::kUnauthenticated);
  if (!known) return wrong(absl::StrCat("code ", body.code()));
  return End{
      body.ticket(), read_direction(body.is_mine()),
      absl::Status(static_cast<ErrorCode>(body.code()), printable(body.reason(), kMaxReasonBytes))};
}

absl::StatusOr<Message> read(const proto::NcclOpen& body) {
  auto link = read(body.link());
  if (!link.ok()) return link.status();
  if (body.epoch() == 0) return wrong("no epoch");
  if (body.id().size() != NcclApi::kIdBytes) {
    return wrong(absl::StrCat("an id of ", body.id().size(), " bytes"));
  }
  return Open{*link, body.epoch(), body.version(), body.id()};
}

absl::StatusOr<Message> read(const proto::NcclStart& body) {
  auto link = read(body.link());
  if (!link.ok()) return link.status();
  if (body.epoch() == 0 || body.number() == 0 || body.ticket() == 0) return wrong("no number");
  return Start{*link, body.epoch(), body.number(), body.ticket(), read_direction(body.is_mine())};
}

absl::StatusOr<Message> read(const proto::NcclAbort& body) {
  auto link = read(body.link());
  if (!link.ok()) return link.status();
  if (body.epoch() == 0) return wrong("no epoch");
  Cause cause;
  switch (body.cause()) {
    case proto::NcclAbort::FAILED:
      cause = Cause::kFailed;
      break;
    case proto::NcclAbort::STOPPED:
      cause = Cause::kStopped;
      break;
    case proto::NcclAbort::INCOMPATIBLE:
      cause = Cause::kIncompatible;
      break;
    default:
      return wrong("an unknown cause");
  }
  return Abort{*link, body.epoch(), cause, printable(body.reason(), kMaxReasonBytes)};
}

absl::StatusOr<Message> read(const proto::NcclMessage& in) {
  switch (in.body_case()) {
    case proto::NcclMessage::kOffer:
      return read(in.offer());
    case proto::NcclMessage::kAccept:
      if (in.accept().ticket() == 0) return wrong("no ticket");
      return Accept{in.accept().ticket()};
    case proto::NcclMessage::kReady:
      if (in.ready().ticket() == 0) return wrong("no ticket");
      return Ready{in.ready().ticket()};
    case proto::NcclMessage::kDone:
      if (in.done().ticket() == 0) return wrong("no ticket");
      return Done{in.done().ticket()};
    case proto::NcclMessage::kRetract:
      if (in.retract().ticket() == 0) return wrong("no ticket");
      return Retract{in.retract().ticket(), read_direction(in.retract().is_mine())};
    case proto::NcclMessage::kEnd:
      return read(in.end());
    case proto::NcclMessage::kOpen:
      return read(in.open());
    case proto::NcclMessage::kStart:
      return read(in.start());
    case proto::NcclMessage::kAbort:
      return read(in.abort());
    case proto::NcclMessage::BODY_NOT_SET:
      break;
  }
  return wrong("no body");
}

}  // namespace

std::size_t most_bytes(const Message& message) {
  // Numbers, tags, an id or a reason.
  std::size_t bytes = kMaxReasonBytes + 256;
  if (const Offer* offer = std::get_if<Offer>(&message)) bytes += 10 * offer->sizes.size();
  return bytes;
}

std::string encode(const std::vector<Message>& messages) {
  proto::NcclNote out;
  for (const Message& message : messages) std::visit(Writer{*out.add_messages()}, message);
  return out.SerializeAsString();
}

absl::StatusOr<std::vector<Message>> decode(std::string_view bytes) {
  proto::NcclNote in;
  if (bytes.size() > INT_MAX || !in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("this is no message of an NCCL plane");
  }
  std::vector<Message> messages;
  for (const proto::NcclMessage& each : in.messages()) {
    absl::StatusOr<Message> message = read(each);
    if (!message.ok()) return message.status();
    messages.push_back(*std::move(message));
  }
  return messages;
}

}  // namespace sinew::internal::nccl
