#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rpc.pb.h"
#include "sinew/rpc/calls/message_layers.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/calls/received_envelope.h"
#include "sinew/rpc/calls/worker_services.h"
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
    if (!call.cancellations.empty()) route.set_cancellations(call.cancellations);
    if (has_layers()) weak_services = services.weak_services();
    allow_devices(route, context);
  }

  bool has_layers() const { return envelope->reply().attachments_size() > 0; }

  const std::string method;
  const std::vector<c10::Stream> streams;
  // Where layers have a part in reading it. It may be read after the worker is gone.
  std::weak_ptr<WorkerServices> weak_services;
  // While it is read. Goes after the route.
  std::shared_ptr<WorkerServices> services_kept;
  MessageRoute route;
  DecodeContext context;
  const ReceivedEnvelope envelope;
  // The layers have seen what came attached.
  bool layers_told = false;
};

}  // namespace sinew::internal
