#pragma once

#include <memory>
#include <string>

#include <google/protobuf/map.h>

#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

using Attachments = google::protobuf::Map<std::string, std::string>;

/// Tells the layers that a message is about to be written by work that `ambient` follows; does
/// nothing when that is null. Before the first value is written.
void begin_message(MessageRoute& route, const std::shared_ptr<void>& ambient,
                   EncodeContext& context);

/// Lets tensors of devices be written or read, if the peer is a worker.
void allow_devices(const MessageRoute& route, EncodeContext& context);
void allow_devices(const MessageRoute& route, DecodeContext& context);

/// Adds what the layers attach to a message that has been written.
void attach_layers(MessageRoute& route, Attachments& attachments);

/// Gives the layers what came attached. Before the first value is read.
void receive_layers(MessageRoute& route, Extension::MessageKind kind,
                    const Attachments& attachments, DecodeContext& context);

}  // namespace sinew::internal
