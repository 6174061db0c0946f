#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/credit.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/message_layers.h"
#include "sinew/rpc/calls/received_envelope.h"
#include "sinew/rpc/method_table.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

/// A received call with what its reading and its reply need. The envelope owns the call.
struct Invocation::Request {
  Request(WorkerServices& services, WorkerInfo from, Clock::TimePoint call_deadline,
          ReceivedEnvelope received, std::vector<absl::Cord> payloads, Credit room = Credit())
      : route(services, std::move(from), call_deadline),
        arguments(std::move(payloads), &route),
        reply_route(services, route.peer(), call_deadline),
        results(&reply_route),
        envelope(std::move(received)),
        credit(std::move(room)) {
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
  /// The room that the call takes of what its caller may send; see Invocation::keep_room().
  Credit credit;
  proto::Envelope reply;
  AnyValue target;
  const MethodTable::Entry* method = nullptr;
};

}  // namespace sinew::internal
