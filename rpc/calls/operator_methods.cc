#include "sinew/rpc/calls/operator_methods.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/flight_recorder.h"
#include "sinew/rpc/base/stop_signal.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

bool is_of_this_host(const std::string& address) {
  for (const char* local : {"ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "unix", "inproc:"}) {
    if (absl::StartsWith(address, local)) return true;
  }
  return false;
}

// Rules that there are have been asked before.
void check_operator(const Invocation& call) {
  const WorkerOptions& options = call.services().options();
  const bool is_known = !call.caller().name.empty() || !options.job_token.empty() ||
                        options.credentials.proves_callers() ||
                        options.methods.restriction(call.method()) != nullptr;
  if (is_known || is_of_this_host(call.remote_address())) return;
  throw RpcError(
      ErrorCode::kPermissionDenied,
      absl::StrFormat("worker '%s' tells operators on other hosts nothing: give the job a token "
                      "(SINEW_JOB_TOKEN), use mutual TLS, or say who may ask with "
                      "MethodTable::restrict(\"sinew.operator.*\", ...)",
                      options.name));
}

}  // namespace

bool is_for_operators(std::string_view method) {
  return method == kOperatorStateMethod || method == kOperatorCancelMethod ||
         method == kOperatorStopMethod || method == kOperatorEventsMethod;
}

void serve_operator_state(const std::shared_ptr<Invocation>& call) {
  check_operator(*call);
  call->check_argument_count(1);
  WorkerServices& services = call->services();
  StateReport report(Codec<std::vector<std::string>>::decode(call->argument(0)),
                     services.clock().now());
  services.report(report);
  deliver(*call, std::move(report.state()));
}

void serve_operator_cancel(const std::shared_ptr<Invocation>& call) {
  check_operator(*call);
  call->check_argument_count(2);
  const std::string caller = Codec<std::string>::decode(call->argument(0));
  const auto id = Codec<std::uint64_t>::decode(call->argument(1));
  deliver(*call, call->services().cancel_served(caller, id));
}

void serve_operator_events(const std::shared_ptr<Invocation>& call) {
  check_operator(*call);
  call->check_argument_count(1);
  const auto most = Codec<std::uint64_t>::decode(call->argument(0));
  std::vector<std::string> lines;
  for (const FlightRecorder::Event& event : FlightRecorder::of_process().events(most)) {
    lines.push_back(absl::StrFormat("%d.%09d %d %s %s %d", event.time_ns / 1000000000,
                                    event.time_ns % 1000000000, event.thread, event.kind,
                                    printable(event.text), event.number));
  }
  deliver(*call, std::move(lines));
}

void serve_operator_stop(const std::shared_ptr<Invocation>& call) {
  check_operator(*call);
  call->check_argument_count(0);
  const bool is_heard = StopSignal::request();
  if (is_heard)
    call->services().log(
        absl::StrCat("asked to end by an operator, from ", call->remote_address()));
  deliver(*call, bool{is_heard});
}

}  // namespace sinew::internal
