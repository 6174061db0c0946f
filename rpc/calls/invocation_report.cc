// What operators see of a call that is being served; the rest is in invocation.cc.

#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/invocation_request.h"
#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

std::string Invocation::remote_address() const { return sink_->remote().address; }

void Invocation::report(std::uint64_t number, StateReport& report) const {
  if (replied_.load(std::memory_order_acquire)) return;
  proto::ServedCall* const call =
      report.add(*report.state().mutable_served_calls(), "served_calls");
  if (call == nullptr) return;
  call->set_id(number);
  write_identity(caller_, *call->mutable_caller());
  if (caller_.rank < 0) call->set_origin(printable(remote_address(), 128));
  call->set_age_us(report.age_us(arrived_at_));
  report.set_left(*call, deadline_);
  call->set_state(entered_.load(std::memory_order_relaxed) ? proto::ServedCall::RUNS
                  : is_queued()                            ? proto::ServedCall::QUEUED
                                : proto::ServedCall::WAITS_FOR_ARGUMENTS);
  // It may be let go of otherwise.
  MutexLock reports(services_.server().reports());
  const Request* const request = reported_.load(std::memory_order_acquire);
  if (request == nullptr) return;
  call->set_method(printable(request->call().method(), 512));
  for (const std::string& method : request->call().chain()) {
    call->add_chain(printable(method, 512));
  }
  if (!waits_for_turn()) return;
  if (is_queued()) call->set_state(proto::ServedCall::WAITS_FOR_TURN);
  CallTurn& turn = *request->turn;
  MutexLock lock(turn.mutex);
  if (!turn.turn.valid()) return;
  call->set_turn_of(turn.object.first);
  call->set_turns_ahead(turn.turn.ahead());
}

}  // namespace sinew::internal
