#pragma once

#include <memory>
#include <string_view>

namespace sinew::internal {

class Invocation;

// The methods of each worker by which operators see what it does: docs/operate.md. They are served
// also while all handlers' threads are taken. Without a rule for them (MethodTable::restrict())
// they are for those who know the job's token, whose certificate the job's authority has signed, or
// who are on this host.

/// `(list<text>)->WorkerState`: see operator.proto.
inline constexpr std::string_view kOperatorStateMethod = "sinew.operator.state";
/// `(text caller, integer id)->bool`: cancels the call that `caller` (empty: a client) has made
/// here under that number. False: there is none.
inline constexpr std::string_view kOperatorCancelMethod = "sinew.operator.cancel";

/// `()->bool`: asks the worker's process to end, as SIGTERM does, if it waits for that (StopSignal,
/// Worker::serve_until_done()). False: it does not.
inline constexpr std::string_view kOperatorStopMethod = "sinew.operator.stop";

/// `(integer most)->list<text>`: the latest events of the process (FlightRecorder), oldest first,
/// each "seconds thread kind text number".
inline constexpr std::string_view kOperatorEventsMethod = "sinew.operator.events";

bool is_for_operators(std::string_view method);
void serve_operator_state(const std::shared_ptr<Invocation>& call);
void serve_operator_cancel(const std::shared_ptr<Invocation>& call);
void serve_operator_events(const std::shared_ptr<Invocation>& call);
void serve_operator_stop(const std::shared_ptr<Invocation>& call);

}  // namespace sinew::internal
