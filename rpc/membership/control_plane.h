#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/membership/contact.h"

namespace sinew::internal {

/// Serves one control call. `from` is who the connection says it comes from (rank -1 for a worker
/// that has not joined yet). Runs on the control executor: it must not block, and may answer later.
/// Its errors reach the caller with their code and text.
using ControlHandler = std::function<Future<std::string>(const WorkerInfo& from, std::string body)>;

inline constexpr std::string_view kJoinMethod = "sinew.member.join";
inline constexpr std::string_view kListMethod = "sinew.member.list";
inline constexpr std::string_view kUpdateMethod = "sinew.member.update";
inline constexpr std::string_view kInviteMethod = "sinew.member.invite";
inline constexpr std::string_view kLeaveMethod = "sinew.member.leave";
inline constexpr std::string_view kVoteMethod = "sinew.member.vote";
inline constexpr std::string_view kProposeMethod = "sinew.member.propose";

/// Whether a worker may call the control method where it is not known as a member: before it is
/// one, of a worker that is being let in, which knows nobody, and has a vote, or when it has left
/// and was not told so. Each of these looks itself at who asks. Calls of the others wait, for a
/// while, until their caller is known.
bool is_for_guests(std::string_view method);

/// Calls by which workers run the job itself (joining, leaving, gathering). They travel on the
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

  /// Calls whoever answers there, known or not. One try: kUnavailable or kNotFound when nobody
  /// does.
  virtual Future<std::string> control_call_address(const Contact& contact, std::string_view method,
                                                   std::string body,
                                                   std::chrono::nanoseconds timeout) = 0;
};

}  // namespace sinew::internal
