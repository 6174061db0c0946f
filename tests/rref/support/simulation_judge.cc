// The invariants of SimulatedCluster.

#include "absl/strings/str_cat.h"
#include "sinew/tests/rref/support/ledger_inspector.h"
#include "sinew/tests/rref/support/simulation_cluster.h"

namespace sinew::internal::ledger {

bool SimulatedCluster::trusting(int holder, int owner) {
  return holder == owner ||
         (node(holder).alive && node(owner).alive && !fenced_by_time(holder, owner) &&
          !node(holder).ledger.is_lost(node(owner).info));
}

void SimulatedCluster::judge_holders(int changed) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const int holder = static_cast<int>(i);
    if (!node(holder).alive) continue;
    for (const auto& held : LedgerInspector::held_forks(node(holder).ledger)) {
      const int owner = static_cast<int>(held.owner.incarnation.value) - 1;
      if (holder != changed && owner != changed) continue;
      if (held.failed || held.state != UserState::kListed || !trusting(holder, owner)) continue;
      if (!LedgerInspector::lists(node(owner).ledger, held.rref, held.fork, node(holder).info)) {
        violate(absl::StrCat("confirmed ", describe(held.fork), " of ", describe(held.rref), " at ",
                             describe(node(holder).info), " is not listed at ",
                             describe(held.owner)));
      }
    }
  }
}

void SimulatedCluster::judge_records_under_way(const RRefId& destroyed, int owner) {
  for (const auto& [id, carrier] : under_way_) {
    if (!node(carrier.from).alive || !node(carrier.to).alive) continue;
    if (carrier.answers >= 0 && !calls_[static_cast<std::size_t>(carrier.answers)].open) continue;
    for (const ForkRecord& record : carrier.records) {
      if (record.rref != destroyed || record.owner != node(owner).info) continue;
      const bool legitimate = trusting(carrier.from, owner) && trusting(carrier.to, owner) &&
                              trusting(carrier.to, carrier.from) &&
                              trusting(carrier.from, carrier.to) &&
                              !node(owner).ledger.is_lost(node(carrier.to).info) &&
                              !node(owner).ledger.is_lost(node(carrier.from).info) &&
                              !node(carrier.from).ledger.is_lost(node(carrier.to).info) &&
                              !LedgerInspector::refuses(node(carrier.to).ledger, record.fork) &&
                              !LedgerInspector::holds(node(carrier.to).ledger, record.fork);
      if (legitimate) {
        violate(absl::StrCat(describe(destroyed), " destroyed while ", describe(record.fork),
                             " is under way"));
      }
    }
  }
}

void SimulatedCluster::judge_the_end() {
  for (const auto& one : nodes_) {
    if (!one->alive) continue;
    for (const auto& [id, handle] : one->handles) {
      violate(handle.waiting ? "a reference neither worked nor failed" : "a handle is left");
    }
    const LedgerCounters left = one->ledger.counters();
    if (!left.quiescent() || left.tombstones != 0) {
      std::string text = absl::StrCat(describe(one->info), " keeps entries: forks ", left.forks,
                                      ", children ", left.pending_children, ", parked ",
                                      left.parked, ", tombstones ", left.tombstones);
      for (const LiveReference& live : one->ledger.live_references()) {
        absl::StrAppend(&text, "\n  ", to_text(live));
      }
      violate(text);
    }
    if (!one->entries.empty()) violate("values were never destroyed");
    for (const auto& [peer, link] : one->links) {
      if (!link.unheard.empty()) violate("a control message has not been heard");
    }
  }
}

}  // namespace sinew::internal::ledger
