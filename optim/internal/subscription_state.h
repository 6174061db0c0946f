#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sinew/optim/internal/publication_table.h"

namespace sinew::internal {

/// The reader's side of a publication: whom it asks, what it fetches from where, and when it
/// switches. It does one thing at a time; what is told of another one is ignored. Pure; not
/// thread-safe.
class SubscriptionState {
 public:
  using ReaderId = PublicationTable::ReaderId;
  /// Of one thing that it does. Never used again.
  using Attempt = std::uint64_t;

  enum class Do {
    kNothing,
    /// Find the writer.
    kSeek,
    /// Wait a moment.
    kPause,
    /// Ask the writer, with `has()`, `failed()` and whether it shares memory.
    kAsk,
    /// Map the memory of the source.
    kShare,
    /// Apply the source's changes to a copy of what there is.
    kFetchChanges,
    kFetchWhole,
  };
  struct Step {
    Do what = Do::kNothing;
    Attempt attempt = 0;
    /// What there is from now on. Before `what`.
    std::optional<VersionLabel> switched;
  };
  enum class Fault {
    /// The other end may be there.
    kFailed,
    /// It is lost.
    kLost,
    /// It has no such changes.
    kNoChanges,
  };

  explicit SubscriptionState(ReaderId self) : self_(self) {}

  Step begin() { return next(Do::kSeek); }
  Step on_found(Attempt attempt);
  Step on_not_found(Attempt attempt);
  Step on_pause_over(Attempt attempt);
  /// Nothing: it has been asked long enough, and there is nothing new.
  Step on_answer(Attempt attempt, const std::optional<PublicationTable::Answer>& answer);
  /// The writer may live. It is sought all the same, and the worker that has its name now is found.
  Step on_ask_failed(Attempt attempt);
  /// All bytes are there, and this is their digest.
  Step on_fetched(Attempt attempt, const std::string& digest);
  Step on_fetch_failed(Attempt attempt, Fault fault);
  /// The worker is another one, and this another reader to the writer: what is under way is over.
  Step on_new_worker(ReaderId self) {
    self_ = self;
    share_failures_ = 0;
    return next(Do::kSeek);
  }

  const VersionLabel& has() const { return has_; }
  /// What is fetched.
  const PublicationTable::Answer& wanted() const { return wanted_; }
  PublicationTable::Ask ask(const std::string& pod) const;
  /// How often bytes came that were not what they should be.
  std::uint64_t rejected() const { return rejected_; }
  Do doing() const { return doing_; }

 private:
  Step next(Do what);
  Step fetch_failed();
  bool is_current(Attempt attempt) const;

  ReaderId self_;
  Attempt attempt_ = 0;
  Do doing_ = Do::kNothing;
  /// What a pause is before.
  Do after_pause_ = Do::kSeek;
  VersionLabel has_;
  PublicationTable::Answer wanted_;
  ReaderId failed_ = PublicationTable::kNobody;
  /// In a row: with several sources, no memory can be mapped here, whatever they say.
  int share_failures_ = 0;
  std::uint64_t rejected_ = 0;
};

}  // namespace sinew::internal
