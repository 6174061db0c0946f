#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "c10/core/Stream.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

/// What calls need of the device layer, in addition to what it keeps with a message
/// (MessageRoute::DevicePart). Thread-safe.
class MessageDevices {
 public:
  /// The layer's name in attachments.
  static constexpr std::string_view kLayer = "device";

  virtual ~MessageDevices() = default;

  /// For the contexts of messages, which may outlive the worker.
  virtual std::shared_ptr<DeviceRoad> road() = 0;
  /// This thread's streams of the devices on which results of `peer` may arrive.
  virtual std::vector<c10::Stream> streams_of_results(const WorkerInfo& peer) const = 0;
  /// The message has been written and is about to be sent: offers what the road has taken. What to
  /// attach under kLayer; empty: nothing, as for all replies without a device part. Calling thread.
  virtual std::string offer_transfers(MessageRoute& route) = 0;
};

}  // namespace sinew::internal
