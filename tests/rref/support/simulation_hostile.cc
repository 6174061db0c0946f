#include "sinew/tests/rref/support/simulation_hostile.h"

#include <string>
#include <vector>

#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {

namespace {

/// Forks of others that the owner lists.
std::vector<LedgerInspector::HeldFork> targets_at(SimulatedCluster& cluster, int owner,
                                                  int attacker) {
  const SimulatedCluster::Node& victim = cluster.node(owner);
  std::vector<LedgerInspector::HeldFork> targets;
  for (int i = 0; i < cluster.nodes(); ++i) {
    const SimulatedCluster::Node& holder = cluster.node(i);
    if (i == attacker || !holder.alive) continue;
    for (const auto& held : LedgerInspector::held_forks(holder.ledger)) {
      if (held.owner == victim.info &&
          LedgerInspector::lists(victim.ledger, held.rref, held.fork, holder.info)) {
        targets.push_back(held);
      }
    }
  }
  return targets;
}

absl::Status attack(SimulatedCluster& cluster, const LedgerInspector::HeldFork& target, int owner,
                    const WorkerInfo& evil) {
  SimulationRandom& random = cluster.random();
  Ledger& victim = cluster.node(owner).ledger;
  const auto hostile = [&](const LedgerMessage& message) {
    return victim.handle(message, evil, cluster.now()).status;
  };
  switch (random.below(5)) {
    case 0:
      return hostile(Delete{target.rref, target.fork, Time(0)});
    case 1:
      return hostile(Claim{target.rref, target.fork});
    case 2:
      return victim.authorise_use(target.rref, target.fork, evil).status();
    case 3: {
      // A child of a fork that was never passed on, with a token made without the secret.
      const ForkId child{target.fork.creator, 1000000 + random.below(1000), random.next()};
      return hostile(AddFork{target.rref, public_part(target.fork), child, Token{}});
    }
    default:
      break;
  }
  ForkRecord record;
  record.owner = victim.self();
  record.rref = target.rref;
  record.parent = public_part(target.fork);
  record.fork = ForkId{evil.incarnation, 1000000 + random.below(1000), 0};
  return victim.receive(record, evil, SimulatedCluster::described(), cluster.now()).result.status();
}

}  // namespace

void forge(SimulatedCluster& cluster, int attacker) {
  const int owner = cluster.other_node(attacker);
  if (owner < 0) return;
  cluster.check_leases(owner);
  const auto targets = targets_at(cluster, owner, attacker);
  if (targets.empty()) return;
  const auto target = targets[cluster.random().below(targets.size())];
  ++cluster.report().forgeries;
  const Ledger& victim = cluster.node(owner).ledger;
  const std::string before = LedgerInspector::fingerprint(victim);
  const absl::Status status = attack(cluster, target, owner, cluster.node(attacker).info);
  if (status.ok()) cluster.violate("a forged message was obeyed");
  if (LedgerInspector::fingerprint(victim) != before) {
    cluster.violate("a forged message changed a table");
  }
}

}  // namespace sinew::internal::ledger
