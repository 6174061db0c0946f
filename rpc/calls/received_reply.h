#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rpc.pb.h"
#include "sinew/rpc/calls/message_layers.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/calls/received_envelope.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

struct ReceivedReply::Data {
  Data(WorkerServices& services, WorkerInfo from, const PendingCall& call,
       ReceivedEnvelope received, std::vector<absl::Cord> payloads)
      : method(call.method),
        streams(call.streams),
        route(services, std::move(from), call.deadline),
        context(std::move(payloads), &route),
        envelope(std::move(received)) {
    allow_devices(route, context);
  }

  const std::string method;
  const std::vector<c10::Stream> streams;
  MessageRoute route;
  DecodeContext context;
  const ReceivedEnvelope envelope;
  // The layers have seen what came attached.
  bool layers_told = false;
};

}  // namespace sinew::internal
