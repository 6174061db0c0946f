#include "sinew/rpc/link/link_life.h"

#include <algorithm>

namespace sinew::internal {
namespace {

// A beat that comes as rarely as this costs an end nothing worth a refusal.
constexpr std::chrono::nanoseconds kNotTooOften = std::chrono::seconds(1);

}  // namespace

LinkLife::LinkLife(LeaseTerms own, TimePoint now)
    : own_(own), theirs_(own), acknowledged_(now), heard_(now), next_beat_(now) {}

std::chrono::nanoseconds LinkLife::smaller_lease() const {
  return std::min(own_.lease, theirs_.lease);
}

std::chrono::nanoseconds LinkLife::larger_lease() const {
  return std::max(own_.lease, theirs_.lease);
}

std::chrono::nanoseconds LinkLife::interval() const {
  return std::min({own_.interval, theirs_.interval, smaller_lease() / 5});
}

void LinkLife::agree(const LeaseTerms& theirs) { theirs_ = theirs; }

void LinkLife::on_up(TimePoint now) {
  if (!SINEW_LINK_BUG(kOfferNotHeard)) heard_ = now;
  next_beat_ = now + interval();
}

void LinkLife::on_contact(TimePoint sent, TimePoint now) {
  // A handshake is a beat that was answered. `sent` of an earlier attempt must not move it back.
  acknowledged_ = had_contact_ ? std::max(acknowledged_, sent) : sent;
  had_contact_ = true;
  heard_ = now;
}

void LinkLife::on_beat(TimePoint now) { heard_ = now; }

void LinkLife::on_beat_reply(std::uint64_t beat, TimePoint now) {
  // Numbers that were never sent, are out of date or come again change nothing.
  if (beat > last_beat_) return;
  while (!sent_.empty() && sent_.front().beat < beat) sent_.pop_front();
  if (sent_.empty() || sent_.front().beat != beat) return;
  acknowledged_ =
      SINEW_LINK_BUG(kFenceFromAnswer) ? now : std::max(acknowledged_, sent_.front().when);
  sent_.pop_front();
  heard_ = now;
}

std::uint64_t LinkLife::take_beat(TimePoint now) {
  next_beat_ = now + interval();
  while (!sent_.empty() && now - sent_.front().when >= larger_lease()) sent_.pop_front();
  sent_.push_back({++last_beat_, now});
  return last_beat_;
}

bool terms_fit(const LeaseTerms& own, const LeaseTerms& theirs) {
  using std::chrono::nanoseconds;
  return theirs.interval > nanoseconds(0) &&
         theirs.interval >= std::min({own.interval, theirs.lease / 100, kNotTooOften}) &&
         theirs.lease >= own.lease / 100 && theirs.lease / 100 <= own.lease &&
         theirs.lease / 3 >= theirs.interval;
}

}  // namespace sinew::internal
