#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "sinew/tests/rref/support/explorer_table.h"

namespace sinew::internal::ledger {

/// How often each fault may strike on one path.
struct Faults {
  int drops = 0;  // a call, its reply or its record is lost, or given up while it is on its way
  int duplicates = 0;  // any message arrives twice
  int crashes = 0;     // a worker ends; the others hear of it each in their own time
  int advances = 0;    // deadlines, leases and tombstones pass at any moment
};

/// A whole world: workers, and what is on its way between them.
struct WorldState {
  absl::InlinedVector<const Node*, 3> workers;
  absl::InlinedVector<const Letter*, 12> net;  // sorted by id
  Faults left;
  Moment moment;

  const Node& worker(int index) const { return *workers[static_cast<std::size_t>(index)]; }
  bool alive(int index) const { return worker(index).state.alive; }
  /// Both are alive and neither knows of a loss of the other.
  bool in_touch(int a, int b) const;

  const Letter& take(std::size_t i);
  /// Nothing is sent to the dead.
  void send(const Letter& letter);
  void apply(int worker, const Effect& effect);
  /// Takes what is on its way to a worker.
  void drop_all_to(int worker);

  /// Equal states have equal hashes; different ones do not, for all that can be counted here: with
  /// n states the chance that any two share a hash is n^2 / 2^65.
  std::uint64_t hash() const;
};

/// Which invariant between workers the state breaks; empty if none.
std::string judge(const WorldState& state);

/// Nothing else can happen to the packet's receiver on account of it, now or whenever it comes.
bool without_effect(const WorldState& state, const Packet& packet);

}  // namespace sinew::internal::ledger
