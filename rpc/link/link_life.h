#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "sinew/rpc/base/boot_clock.h"
#include "sinew/rpc/link/link_bugs.h"
#include "sinew/rpc/link/link_messages.h"

namespace sinew::internal {

/// Whether the other end lives, and until when each end may hold what belongs to the other (rule
/// L7). An end *fences* (uses nothing of the other any more) when the smaller lease has passed
/// since it *sent* the last beat that was answered. It *drops* what the other holds here when 1.25
/// times the larger lease has passed since it last *heard* from it. A beat is sent before it is
/// heard, so the holder gives up first, whatever the network does; the quarter is for clocks that
/// differ.
///
/// Pure: time comes from outside, from a clock that counts while the machine is suspended, and must
/// not go back. Not thread-safe.
class LinkLife {
 public:
  using TimePoint = BootClock::TimePoint;

  LinkLife(LeaseTerms own, TimePoint now);

  /// The other end's terms, from its hello.
  void agree(const LeaseTerms& theirs);
  /// The other end has said a hello.
  void on_heard(TimePoint now) { heard_ = now; }
  /// A connection is up here.
  void on_up(TimePoint now);
  /// It is surely up at the other end too, which therefore has heard this end's hello: `sent` is
  /// when that left. What counts begins anew with the first contact.
  void on_contact(TimePoint sent, TimePoint now);
  void on_beat(TimePoint now);
  void on_beat_reply(std::uint64_t beat, TimePoint now);

  /// When this end must beat. An end that does not lead waits for the other's beat, with which it
  /// sends its own, and beats by itself only if none comes.
  TimePoint next_beat(bool leads) const { return leads ? next_beat_ : next_beat_ + interval() / 2; }
  /// The number of a beat that is sent now.
  std::uint64_t take_beat(TimePoint now);

  bool had_contact() const { return had_contact_; }
  /// True once this end must not use the other any more; only after contact.
  bool fenced(TimePoint now) const { return had_contact_ && now >= fence_at(); }
  TimePoint fence_at() const { return acknowledged_ + smaller_lease(); }
  /// When the newest beat that was answered had left.
  TimePoint acknowledged() const { return acknowledged_; }
  TimePoint suspected_at() const { return acknowledged_ + smaller_lease() / 2; }
  /// When what the other end holds here may be dropped.
  TimePoint drop_at() const {
    if (SINEW_LINK_BUG(kDropWithoutMargin)) return heard_ + smaller_lease();
    return heard_ + larger_lease() + larger_lease() / 4;
  }
  bool suspected(TimePoint now) const { return had_contact_ && now >= suspected_at(); }
  std::chrono::nanoseconds interval() const;
  std::chrono::nanoseconds smaller_lease() const;
  std::chrono::nanoseconds larger_lease() const;

 private:
  friend struct LinkInspector;  // tests only: a digest of the state
  struct Sent {
    std::uint64_t beat = 0;
    TimePoint when;
  };

  LeaseTerms own_;
  LeaseTerms theirs_;
  bool had_contact_ = false;
  TimePoint acknowledged_;
  TimePoint heard_;
  TimePoint next_beat_;
  std::uint64_t last_beat_ = 0;
  // Not answered, oldest first; none older than the lease.
  std::deque<Sent> sent_;
};

/// Whether two ends can work together by these terms: the lease of the other one is within a
/// hundredth and a hundred times ours, has room for three beats, and for no more than a hundred
/// unless we beat as often, or they are a second apart.
bool terms_fit(const LeaseTerms& own, const LeaseTerms& theirs);

}  // namespace sinew::internal
