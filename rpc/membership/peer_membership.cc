#include "sinew/rpc/membership/peer_membership.h"

#include <utility>

#include "sinew/rpc/membership/membership_core.h"

namespace sinew::internal {

PeerMembership::PeerMembership(ControlPlane& plane, Directory& directory, Options options,
                               Scheduler& scheduler)
    : core_(std::make_shared<MembershipCore>(plane, directory, std::move(options), scheduler)) {
  core_->add_methods();
}

PeerMembership::~PeerMembership() { core_->close(); }

Future<void> PeerMembership::join_async() { return core_->join_async(); }

Future<void> PeerMembership::leave_async(std::chrono::nanoseconds timeout) {
  return core_->leave_async(timeout);
}

void PeerMembership::on_sought() { core_->on_sought(); }

void PeerMembership::on_worker_lost(const WorkerInfo& worker, Proof proof, std::string reason) {
  core_->on_worker_lost(worker, proof, std::move(reason));
}

void PeerMembership::when_judged(const WorkerInfo& worker, std::function<void()> then) {
  core_->when_judged(worker, std::move(then));
}

Standing PeerMembership::on_asked(const WorkerInfo& asker, const std::string& address,
                                  const Standing& claim) {
  return core_->on_asked(asker, address, claim);
}

MembershipState PeerMembership::state() const { return core_->state(); }

std::vector<Contact> PeerMembership::contacts() const { return core_->contacts(); }

bool PeerMembership::uses_file() const { return core_->uses_file(); }

bool PeerMembership::ready() const { return core_->ready(); }

WorkerInfo PeerMembership::self() const { return core_->self(); }

std::vector<std::string> PeerMembership::world_names() const { return core_->world_names(); }

WorkerInfo PeerMembership::coordinator() const { return core_->coordinator(); }

}  // namespace sinew::internal
