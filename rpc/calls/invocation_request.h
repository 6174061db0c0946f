#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/calls/call_turn.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/message_layers.h"
#include "sinew/rpc/calls/method_load.h"
#include "sinew/rpc/calls/received_envelope.h"
#include "sinew/rpc/calls/scratch_envelope.h"
#include "sinew/rpc/method_table.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

/// A received call with what its reading and its reply need. The envelope owns the call.
struct Invocation::Request {
  Request(WorkerServices& services, ArrivedCall arrived)
      : route(services, std::move(arrived.caller), arrived.deadline),
        arguments(std::move(arrived.payloads), &route),
        reply_route(services, route.peer(), arrived.deadline),
        results(&reply_route),
        envelope(std::move(arrived.envelope)),
        size_bytes(arrived.size_bytes),
        room(std::move(arrived.room)),
        ticket(std::move(arrived.ticket)) {
    reply_route.set_call(&route);
    allow_devices(route, arguments);
    allow_devices(reply_route, results);
  }

  const proto::Call& call() const { return envelope->call(); }

  MessageRoute route;
  DecodeContext arguments;
  MessageRoute reply_route;
  EncodeContext results;
  const ReceivedEnvelope envelope;
  const std::uint64_t size_bytes;
  /// Of the method's limits, until the reply is claimed.
  MethodLoad::Share share;
  /// See Invocation::keep_room().
  RequestRoom room;
  /// Until it has its turn, or has none.
  CallerOrder::Ticket ticket;
  /// Null: of its object's calls any number may be under way.
  std::unique_ptr<CallTurn> turn;
  ScratchEnvelope reply{ScratchEnvelope::Kind::kReply};
  AnyValue target;
  const MethodTable::Entry* method = nullptr;
};

}  // namespace sinew::internal
