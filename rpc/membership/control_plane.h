#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// Serves one control call. `from` is who the connection says it comes from. Runs on the control
/// executor: it must not block, and may answer later. Its errors reach the caller with their code
/// and text.
using ControlHandler = std::function<Future<std::string>(const WorkerInfo& from, std::string body)>;

/// Calls by which workers run the job itself. They travel on the
/// control lane, so no user call can hold them up, and run at most once like every call.
/// Thread-safe.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  /// Before the worker starts to accept. `name` starts with "sinew.".
  virtual void add_control_method(std::string name, ControlHandler handler) = 0;

  /// Calls a known worker. Fails with kUnavailable when it is lost, kDeadlineExceeded after
  /// `timeout`.
  virtual Future<std::string> control_call(const WorkerInfo& to, std::string_view method,
                                           std::string body, std::chrono::nanoseconds timeout) = 0;
};

}  // namespace sinew::internal
