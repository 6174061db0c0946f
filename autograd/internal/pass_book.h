#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "sinew/autograd/internal/pass_id.h"
#include "sinew/autograd/internal/pass_part.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// What one worker knows of the backward passes of one context: the one that runs here, which have
/// ended, and whom it still has to tell of failures. Pure; tests/autograd explores it together with
/// PassPart. Not thread-safe.
///
/// A pass that is done here may still fail elsewhere. The notice of that may arrive late. So it is
/// also sent with the next request of the worker that reports it, and what the failed pass had
/// added is taken back before the next one adds anything.
class PassBook {
 public:
  explicit PassBook(Incarnation self) : self_(self) {}

  enum class Joining : std::uint8_t {
    /// It runs from now on.
    kBegins,
    /// It runs already.
    kRuns,
    /// It has ended, or a later one of its initiator has.
    kIsOver,
    /// Another one runs.
    kMustWait,
  };
  struct Joined {
    Joining how = Joining::kBegins;
    /// The initiator has given that one up, which ran.
    std::optional<PassId> stale;
  };
  Joined join(const PassId& id);
  const std::optional<PassId>& running() const { return running_; }
  bool runs(const PassId& id) const { return running_.has_value() && *running_ == id; }

  /// What follows from the end of a pass for what it may have added.
  enum class Added : std::uint8_t { kStays, kIsTakenBack };
  /// The pass has ended here; also for one that never began here.
  Added end(const PassId& id, PassPart::End end);

  /// `worker` has to hear that this pass of this worker's has failed, until it is said to have.
  void owe(std::uint64_t failed, Incarnation worker);
  void settle(std::uint64_t failed, Incarnation worker);
  /// What goes along with a request to `worker`.
  std::vector<std::uint64_t> owed_to(Incarnation worker) const;

  /// Appends what this state is.
  void append_key(std::string& key) const;

 private:
  void note_end(const PassId& id);

  Incarnation self_;
  std::optional<PassId> running_;
  /// The last pass of each initiator that has ended.
  absl::btree_map<Incarnation, std::uint64_t> ended_;
  absl::btree_set<std::pair<Incarnation, std::uint64_t>> owed_;
};

}  // namespace sinew::internal
