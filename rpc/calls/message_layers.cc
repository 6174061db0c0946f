#include "sinew/rpc/calls/message_layers.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/message_devices.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// Without the layer the call would do something else than its caller asks for.
void require_layers(const WorkerServices& services, const Attachments& attachments) {
  for (const auto& attachment : attachments) {
    if (services.extension(attachment.first) != nullptr) continue;
    throw RpcError(
        ErrorCode::kUnimplemented,
        absl::StrFormat("worker '%s' has no layer '%s', which the call needs: its program includes "
                        "none of that layer's headers",
                        services.self().name, printable(attachment.first, 64)));
  }
}

}  // namespace

void begin_message(MessageRoute& route, const std::shared_ptr<void>& ambient,
                   EncodeContext& context) {
  if (ambient == nullptr) return;
  for (const auto& extension : route.services().extensions())
    extension->begin_message(route, ambient);
  context.set_tensor_hook(route.tensor_hook().get());
}

void allow_devices(const MessageRoute& route, EncodeContext& context) {
  if (route.peer().rank >= 0) context.set_device_road(route.services().devices().road());
}

void allow_devices(const MessageRoute& route, DecodeContext& context) {
  if (route.peer().rank >= 0) context.set_device_road(route.services().devices().road());
}

void attach_layers(MessageRoute& route, Attachments& attachments) {
  // A call says where its results arrive.
  if (route.call() == nullptr || route.device_part() != nullptr) {
    std::string body = route.services().devices().offer_transfers(route);
    if (!body.empty()) attachments[std::string(MessageDevices::kLayer)] = std::move(body);
  }
  if (route.tensor_hook() == nullptr) return;
  for (const auto& extension : route.services().extensions()) {
    std::string body = extension->on_send(route);
    if (!body.empty()) attachments[std::string(extension->layer())] = std::move(body);
  }
}

void receive_layers(MessageRoute& route, Extension::MessageKind kind,
                    const Attachments& attachments, DecodeContext& context) {
  // A client that is no worker takes part in nothing.
  if (attachments.empty() || route.peer().rank < 0) return;
  require_layers(route.services(), attachments);
  for (const auto& extension : route.services().extensions()) {
    const auto found = attachments.find(std::string(extension->layer()));
    if (found != attachments.end()) extension->on_receive(route, kind, found->second);
  }
  context.set_tensor_hook(route.tensor_hook().get());
}

}  // namespace sinew::internal
