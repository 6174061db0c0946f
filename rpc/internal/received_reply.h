#pragma once

#include <memory>
#include <optional>
#include <string>

#include "sinew/rpc.pb.h"
#include "sinew/rpc/internal/pending_call.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

struct ReceivedReply::Data {
  Data(WorkerCore& core, WorkerInfo from, std::string called_method, Clock::TimePoint deadline,
       std::unique_ptr<proto::Envelope> received, Frame frame)
      : method(std::move(called_method)),
        route(core, std::move(from), deadline),
        context(std::move(frame.payloads), &route),
        envelope(std::move(received)),
        credit(std::move(frame.credit)) {}

  const std::string method;
  MessageRoute route;
  DecodeContext context;
  const std::unique_ptr<proto::Envelope> envelope;
  Credit credit;
};

}  // namespace sinew::internal
