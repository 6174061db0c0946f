#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/planes/make_device_plane.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

/// What a worker is made of in addition to what users choose.
struct WorkerParts {
  /// Layers above those of Sinew.
  std::vector<std::function<std::shared_ptr<Extension>(WorkerServices&)>> extensions;
  /// Wraps the transport; tests inject faults with it. May be empty.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> wrap_transport;
  /// Comes between calls and their answers; tests inject faults with it. May be empty.
  WrapReplySink wrap_reply_sink;
  /// Makes another plane between devices than NCCL's. May be empty.
  MakeDevicePlane device_plane;
};

/// The parts of these options, to be changed; those of copies made before stay as they are.
inline WorkerParts& parts_of(WorkerOptions& options) {
  auto parts = options.parts == nullptr ? std::make_shared<WorkerParts>()
                                        : std::make_shared<WorkerParts>(*options.parts);
  options.parts = parts;
  return *parts;
}

}  // namespace sinew::internal
