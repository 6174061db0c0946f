// What a worker tells operators of itself; the rest is in worker_core.cc.

#include <unistd.h>

#include <fstream>

#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"
#include "sinew/version.h"

namespace sinew::internal {
namespace {

const char* text_of(MembershipState state) {
  switch (state) {
    case MembershipState::kJoining:
      return "JOINING";
    case MembershipState::kMember:
      return "MEMBER";
    case MembershipState::kSuspected:
      return "SUSPECTED";
    case MembershipState::kEvicted:
      return "EVICTED";
    case MembershipState::kLeft:
      break;
  }
  return "LEFT";
}

/// proc_pid_statm(5): the second number is in pages.
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void WorkerCore::report(StateReport& report) {
  proto::WorkerState& state = report.state();
  write_identity(self_, *state.mutable_worker());
  state.set_address(address_);
  state.set_job(options_.job);
  state.set_version(SINEW_VERSION_STRING);
  state.set_membership(text_of(membership_state()));
  state.set_process(static_cast<std::uint64_t>(::getpid()));
  state.set_age_us(report.age_us(started_at_));
  state.set_resident_bytes(resident_bytes());
  for (const Member& member : directory_.members()) encode(member, *state.add_members());
  for (const auto& [name, number] : counters()) (*state.mutable_counters())[name] = number;
  for (const LinkTable::Link& link : links_->table().all()) {
    if (const auto calls = std::dynamic_pointer_cast<CallLink>(link.user)) calls->report(report);
  }
  server_->report(report);
  if (report.wants("gathers")) {
    for (const Membership::Gathering& gathering : membership_->gatherings()) {
      proto::GatherState* const gather = report.add(*state.mutable_gathers(), "gathers");
      if (gather == nullptr) continue;
      gather->set_key(gathering.key);
      for (const std::string& name : gathering.names) gather->add_names(name);
      gather->set_age_us(report.age_us(gathering.since));
    }
  }
  for (const auto& extension : extensions_) extension->report(report);
}

bool WorkerCore::cancel_served(const std::string& caller, std::uint64_t id) {
  if (caller.empty()) return server_->cancel_call_of_client(id);
  for (const LinkTable::Link& link : links_->table().all()) {
    const auto calls = std::dynamic_pointer_cast<CallLink>(link.user);
    if (calls == nullptr || calls->peer().name != caller) continue;
    if (calls->cancel_call_of_peer(id)) return true;
  }
  return false;
}

}  // namespace sinew::internal
