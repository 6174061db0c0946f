#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sinew/autograd/context_id.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// Which contexts of other workers have ended, as those workers have reported. A report by the
/// context's creator holds for all workers. A report by another worker holds for its own calls
/// alone, so no worker can end what others work in by naming it. Pure; not thread-safe.
class EndedContexts {
 public:
  /// How many reports of one worker are remembered, in addition to its report of all contexts below
  /// one. Far more than end while a call is under way; beyond it the oldest are forgotten.
  static constexpr std::size_t kMaxPerTeller = std::size_t{1} << 16;
  /// Of how many creators one worker may speak.
  static constexpr std::size_t kMaxCreatorsPerTeller = 4096;

  /// `teller` says that `id` has ended, and so have all contexts of the same creator below
  /// `live_from`. Contexts that have ended stay so, whatever comes later.
  void add(Incarnation teller, const autograd::ContextId& id, std::uint64_t live_from);
  /// Whether a call of `caller` in this context comes after its end.
  bool contains(const autograd::ContextId& id, Incarnation caller) const;
  /// All contexts of `creator` below this have ended, by its own word.
  std::uint64_t live_from(Incarnation creator) const;
  /// A worker that has ended makes no contexts and no calls.
  void forget(Incarnation worker);

  /// Contexts that are remembered one by one.
  std::size_t size() const;

 private:
  struct Ended {
    std::uint64_t live_from = 0;
    // Serial and secret; none below live_from.
    std::set<std::pair<std::uint64_t, std::uint64_t>> contexts;
  };
  struct Word {
    absl::flat_hash_map<Incarnation, Ended> by_creator;
    std::size_t contexts = 0;
  };

  bool has_said(Incarnation teller, const autograd::ContextId& id) const;

  absl::flat_hash_map<Incarnation, Word> by_teller_;
};

}  // namespace sinew::internal
