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
/// ended, who has asked for which, and whom it still has to tell of failures. Pure; tests/autograd
/// explores it together with PassPart. Not thread-safe.
///
/// A pass that is done here may fail yet, elsewhere. The word of that may come late; so it also
/// comes with the next request of the worker that has to say it, and what the failed pass had added
/// is taken back before the next one adds anything.
class PassBook {
 public:
  explicit PassBook(Incarnation self) : self_(self) {}

  enum class Joining : std::uint8_t {
    /// It runs from now on.
    kBegins,
    /// It runs already.
    kRuns,
    kIsDone,
    /// It has failed, or a later one of its initiator has ended.
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

  /// What follows from the end of a pass: for what it may have added, and for those that it has
  /// asked, which have to be told.
  enum class Added : std::uint8_t { kStays, kIsTakenBack };
  struct Ending {
    Added added = Added::kStays;
    std::vector<Incarnation> abort;
  };
  /// The pass has ended here; also for one that never began here. `asked`: by this worker, if the
  /// pass is done.
  Ending end(const PassId& id, PassPart::End end, std::vector<Incarnation> asked = {});

  /// `by` asks this worker to take part. kTooLate: it has given the pass up before.
  enum class Asked : std::uint8_t { kInTime, kTooLate, kTooMany };
  Asked ask(const PassId& id, Incarnation by);
  /// Whether `by` has asked this worker to take part in the pass, or in a later one of its
  /// initiator.
  bool has_asked(const PassId& id, Incarnation by) const;
  /// What `by` asks of the pass from now on comes too late. Nothing else changes.
  void give_up(const PassId& id, Incarnation by);

  /// `worker` has to hear that the pass has failed, until it is said to have.
  void owe(const PassId& failed, Incarnation worker);
  void settle(const PassId& failed, Incarnation worker);
  /// What goes along with a request to `worker`.
  std::vector<PassId> owed_to(Incarnation worker) const;

  /// Appends what this state is.
  void append_key(std::string& key) const;

 private:
  /// The last pass of an initiator that has ended.
  struct Ended {
    std::uint64_t serial = 0;
    bool done = false;
    std::vector<Incarnation> asked;
  };
  /// What one worker has said of the passes of one initiator: the last of each kind.
  struct Word {
    std::uint64_t asked = 0;
    std::uint64_t given_up = 0;
  };
  /// Who says it, and the initiator.
  using Speaker = std::pair<Incarnation, Incarnation>;

  /// Those that a pass which was done has asked, if it has failed now.
  std::vector<Incarnation> note_end(const PassId& id, Ended end);
  /// Null: there are too many.
  Word* word_of(const Speaker& speaker);

  Incarnation self_;
  std::optional<PassId> running_;
  absl::btree_map<Incarnation, Ended> ended_;
  absl::btree_map<Speaker, Word> words_;
  // Worker, initiator and serial.
  absl::btree_set<std::pair<Speaker, std::uint64_t>> owed_;
};

}  // namespace sinew::internal
