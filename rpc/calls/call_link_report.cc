// What operators see of the calls over a link; the rest is in call_link.cc and call_link_serve.cc.

#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/state_report.h"

namespace sinew::internal {

void CallLink::report(StateReport& report) const {
  std::vector<std::shared_ptr<Invocation>> served;
  std::size_t without_room = 0;
  {
    MutexLock lock(mutex_);
    without_room = waiters_.size();
    for (const auto& [id, entry] : pending_) {
      if (!report.wants("made_calls") || entry.lane != Lane::kCalls || entry.call == nullptr) {
        continue;
      }
      proto::MadeCall* const call = report.add(*report.state().mutable_made_calls(), "made_calls");
      if (call == nullptr) continue;
      call->set_id(id);
      write_identity(peer(), *call->mutable_callee());
      call->set_method(entry.call->method);
      call->set_age_us(report.age_us(entry.call->started));
      report.set_left(*call, entry.call->deadline);
      call->set_parent_caller(entry.call->parent_caller.value);
      call->set_parent_id(entry.call->parent_id);
    }
    if (report.wants("served_calls")) {
      for (const auto& [id, call] : served_) served.push_back(call);
    }
  }
  for (const auto& call : served) call->report(call->call_id(), report);
  if (!report.wants("links") || runner_->is_loopback()) return;
  proto::LinkState* const link = report.add(*report.state().mutable_links(), "links");
  if (link == nullptr) return;
  write_identity(peer(), *link->mutable_peer());
  link->set_calls_without_room(without_room);
  const LinkRunner::Seen seen = runner_->seen();
  link->set_address(seen.address);
  link->set_state(seen.state);
  link->set_suspected(seen.suspected);
  link->set_why_down(seen.why_down);
  link->set_frames(seen.frames);
  link->set_request_bytes(seen.request_bytes);
  link->set_window_bytes(seen.window_bytes);
  link->set_replies_blocked(runner_->replies_blocked());
  for (const std::string& plane : seen.planes) link->add_planes(plane);
}

bool CallLink::cancel_call_of_peer(std::uint64_t id) {
  {
    MutexLock lock(mutex_);
    if (served_.find(id) == served_.end()) return false;
  }
  cancel_served(id);
  return true;
}

}  // namespace sinew::internal
