#include "sinew/rpc/membership/membership.h"

#include <utility>

#include "sinew/rpc/membership/membership_core.h"

namespace sinew::internal {

Membership::Membership(ControlPlane& plane, Directory& directory, Options options,
                       Scheduler& scheduler)
    : core_(std::make_shared<MembershipCore>(plane, directory, std::move(options), scheduler)) {
  core_->add_methods();
}

Membership::~Membership() { core_->close(); }

Future<void> Membership::join_async() { return core_->join_async(); }

Future<void> Membership::leave_async(std::chrono::nanoseconds timeout) {
  return core_->leave_async(timeout);
}

void Membership::on_sought() { core_->on_sought(); }

void Membership::on_worker_lost(const WorkerInfo& worker, Proof proof, std::string reason) {
  core_->on_worker_lost(worker, proof, std::move(reason));
}

void Membership::when_judged(const WorkerInfo& worker, std::function<void()> then) {
  core_->when_judged(worker, std::move(then));
}

Standing Membership::on_asked(const WorkerInfo& asker, const std::string& address,
                              const Standing& claim) {
  return core_->on_asked(asker, address, claim);
}

MembershipState Membership::state() const { return core_->state(); }

std::vector<Contact> Membership::contacts() const { return core_->contacts(); }

bool Membership::uses_file() const { return core_->uses_file(); }

bool Membership::ready() const { return core_->ready(); }

WorkerInfo Membership::self() const { return core_->self(); }

std::vector<std::string> Membership::world_names() const { return core_->world_names(); }

WorkerInfo Membership::coordinator() const { return core_->coordinator(); }

}  // namespace sinew::internal
