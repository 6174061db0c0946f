#include "sinew/rpc/link/link.h"

#include <algorithm>

#include "sinew/rpc/link/link_bugs.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// An end that opens a connection itself leaves the other's aside for so long.
constexpr nanoseconds kPatience = milliseconds(250);
// Each time that it did not help it is doubled, so often at most.
constexpr int kMostYields = 5;
// A firewall, or a listener that is being replaced, may refuse for a moment.
constexpr nanoseconds kRefusalFuse = milliseconds(1000);
constexpr nanoseconds kUnreachedFuse = milliseconds(2500);
constexpr nanoseconds kFirstPause = milliseconds(20);
constexpr nanoseconds kLongestPause = milliseconds(2000);
constexpr nanoseconds kSoon = milliseconds(50);

// For a handshake. The transport's own limit comes first, with the better text.
constexpr nanoseconds kHandshake = milliseconds(12000);

LinkLife life_of(const Link::Options& options, Link::TimePoint now) {
  return LinkLife(options.terms, now);
}

}  // namespace

Consequence consequence_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
    case Refusal::kNotListeningYet:
    case Refusal::kUnreachable:
    case Refusal::kWhoAnswers:
      return Consequence::kTryAgain;
    case Refusal::kDuplicate:
    case Refusal::kBusy:
      return Consequence::kTryAgainSoon;
    case Refusal::kOtherIncarnation:
    case Refusal::kOtherJob:
    case Refusal::kOtherProtocol:
      return Consequence::kCountAsRefused;
    case Refusal::kLostHere:
    case Refusal::kEvicted:
    case Refusal::kLeft:
      return Consequence::kLostIfProved;
    case Refusal::kNotAllowed:
      return Consequence::kFail;
  }
  return Consequence::kTryAgain;
}

const char* text_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "nothing";
    case Refusal::kOtherJob:
      return "another job answers there";
    case Refusal::kOtherProtocol:
      return "it speaks another version of the protocol";
    case Refusal::kNotAllowed:
      return "it does not let this worker in";
    case Refusal::kNotListeningYet:
      return "it is starting";
    case Refusal::kLostHere:
      return "it holds this worker for lost";
    case Refusal::kEvicted:
      return "the others have taken this worker off the list";
    case Refusal::kOtherIncarnation:
      return "another incarnation answers there";
    case Refusal::kLeft:
      return "it has left the job";
    case Refusal::kDuplicate:
      return "it has a connection already";
    case Refusal::kBusy:
      return "it opens a connection itself";
    case Refusal::kUnreachable:
      return "it cannot be reached";
    case Refusal::kWhoAnswers:
      return "it was asked who it is";
  }
  return "an unknown reason";
}

Link::Link(Options options, TimePoint now)
    : options_(options),
      lanes_(options.limits, options.send_window_bytes),
      life_(life_of(options, now)) {}

// ---- Frames.

FrameToken Link::send(OutgoingFrame frame, TimePoint now, Outputs& outputs) {
  expire(now, outputs);
  const FrameToken token = lanes_.send(std::move(frame), now, outputs);
  if (state_ == State::kIdle) dial(now, outputs);
  return token;
}

LinkLanes::GivenUp Link::give_up(FrameToken token, TimePoint now, Outputs& outputs) {
  expire(now, outputs);
  return lanes_.give_up(token, now, outputs);
}

LinkLanes::Delivery Link::on_frame(const ConnectionName& on, const LinkHeader& header,
                                   std::uint64_t room, TimePoint now, Outputs& outputs) {
  expire(now, outputs);
  const bool heard = (state_ == State::kUp && on == connection_) ||
                     (SINEW_LINK_BUG(kOldConnectionHeard) && !ended()) ||
                     SINEW_LINK_BUG(kEndedHears);
  if (!heard) return LinkLanes::Delivery::kDrop;
  if (!confirmed_ && give_up_silent(now, outputs)) return LinkLanes::Delivery::kDrop;
  if (!confirmed_) confirm(now, outputs);
  yielded_ = 0;
  if (header.is_goodbye) {
    end(Gone::kLinkEndedThere, outputs);
    return LinkLanes::Delivery::kDrop;
  }
  const LinkLanes::Delivery delivery = lanes_.on_frame(header, room, now, outputs);
  // What comes again, or breaks the rules, is no progress: it could come without end.
  if (delivery == LinkLanes::Delivery::kDeliver) progressed_ = true;
  if (header.beat_reply != 0) life_.on_beat_reply(header.beat_reply, now);
  if (header.beat != 0) life_.on_beat(now);
  look_for_suspicion(now, outputs);
  return delivery;
}

bool Link::announce(const ConnectionName& on, const LinkHeader& header, std::uint64_t room) {
  return state_ == State::kUp && on == connection_ && lanes_.announce(header, room);
}

void Link::return_room(std::uint64_t requests, std::uint64_t costs, TimePoint now,
                       Outputs& outputs) {
  if (!expire(now, outputs)) lanes_.return_room(requests, costs, now, outputs);
}

void Link::handled(std::uint64_t number, std::uint64_t room, TimePoint now) {
  if (!ended()) lanes_.handled(number, room, now);
}

// One end leads: the other one puts its own beat into its answer, and gets the answer to that with
// the next beat. So a pair of workers costs two small frames per interval. Only the first one on a
// connection is answered at once, since some of the lease may be over by then.
void Link::answer_beat(std::uint64_t beat, TimePoint now, Outputs& outputs) {
  if (expire(now, outputs) || state_ != State::kUp) return;
  if (leads() && std::exchange(answered_, true)) {
    unanswered_beat_ = beat;
  } else {
    this->beat(beat, now, outputs);
  }
}

void Link::beat(std::uint64_t reply, TimePoint now, Outputs& outputs) {
  LinkHeader& header = outputs.writes.emplace_back().header;
  header.beat = life_.take_beat(now);
  header.beat_reply = reply;
  lanes_.fill_header(header);
}

void Link::look_for_suspicion(TimePoint now, Outputs& outputs) {
  const bool suspected = life_.suspected(now);
  if (suspected == suspected_) return;
  suspected_ = suspected;
  outputs.suspected = suspected;
}

// ---- Connections.

LinkHello Link::hello(const ConnectionName& connection) const {
  LinkHello hello;
  hello.connection = connection;
  hello.last_up = last_up_;
  hello.terms = options_.terms;
  lanes_.fill_hello(hello);
  return hello;
}

void Link::connect(TimePoint now, Outputs& outputs) {
  if (expire(now, outputs)) return;
  wanted_ = true;
  if (state_ == State::kIdle) dial(now, outputs);
}

void Link::connect_at_once(TimePoint now, Outputs& outputs) {
  if (SINEW_LINK_BUG(kAskedWaits)) return connect(now, outputs);
  if (expire(now, outputs)) return;
  wanted_ = true;
  const bool waits = state_ == State::kQueued || state_ == State::kBackingOff;
  if (state_ == State::kIdle || waits) dial_now(now, outputs);
}

void Link::dial(TimePoint now, Outputs& outputs) {
  // Who has had its turn, and did not get through, must not keep others from theirs again.
  const bool first = !was_up() && !failing_since_.has_value();
  if (!options_.takes_turns || !first) return dial_now(now, outputs);
  state_ = State::kQueued;
  retry_at_ = TimePoint::max();
  outputs.wants_turn = true;
}

void Link::take_turn(TimePoint now, Outputs& outputs) {
  if (expire(now, outputs)) return;
  if (state_ != State::kQueued && !SINEW_LINK_BUG(kTurnTakenLate)) return;
  if (is_wanted() && !SINEW_LINK_BUG(kTurnForgotten)) {
    dial_now(now, outputs);
  } else {
    state_ = State::kIdle;
  }
}

void Link::dial_now(TimePoint now, Outputs& outputs) {
  state_ = State::kDialling;
  connection_ = {options_.self, ++own_attempts_};
  dialled_at_ = now;
  retry_at_ = TimePoint::max();
  outputs.dial = own_attempts_;
}

Refusal Link::on_offer(const LinkHello& theirs, TimePoint now, Outputs& outputs) {
  if (expire(now, outputs) || ended()) return Refusal::kLostHere;
  const ConnectionName& offer = theirs.connection;
  // Attempts grow, so that an old hello cannot be brought again.
  if (offer.opener != options_.peer || offer.attempt <= their_attempts_) {
    return Refusal::kDuplicate;
  }
  switch (state_) {
    case State::kUp:
    case State::kAccepted: {
      // Either the other end says that this connection has broken, or it has opened this one too.
      const bool supersedes = theirs.last_up == connection_ || connection_.opener == options_.peer;
      if (!supersedes) return Refusal::kDuplicate;
      outputs.close.push_back(connection_);
      lanes_.on_down();
      break;
    }
    case State::kDialling:
      // Of two that open at once the smaller decides, for a while.
      if ((leads() || SINEW_LINK_BUG(kBothKeepTheirOwn)) &&
          (now < dialled_at_ + kPatience * (1 << yielded_) || SINEW_LINK_BUG(kBothKeepTheirOwn))) {
        return Refusal::kBusy;
      }
      // Its own may be arriving just now, and the other end may be taking that in turn. Where that
      // happens again and again, the way is longer than the patience.
      if (leads()) yielded_ = std::min(yielded_ + 1, kMostYields);
      outputs.close.push_back(connection_);
      break;
    case State::kIdle:
    case State::kQueued:
    case State::kBackingOff:
      break;
    case State::kEnded:
      return Refusal::kLostHere;
  }
  their_attempts_ = offer.attempt;
  connection_ = offer;
  // From here on its opener may see it up, and hold this end for alive from when it began.
  last_up_ = offer;
  if (!SINEW_LINK_BUG(kOfferNotHeard)) life_.on_heard(now);
  state_ = State::kAccepted;
  dialled_at_ = now;
  retry_at_ = TimePoint::max();
  return Refusal::kNone;
}

void Link::on_up(const ConnectionName& connection, const LinkHello& theirs, TimePoint now,
                 Outputs& outputs) {
  if (state_ == State::kUp && connection == connection_) return;
  const bool awaited =
      connection == connection_ && (state_ == State::kDialling || state_ == State::kAccepted);
  if (expire(now, outputs) || !awaited) {
    outputs.close.push_back(connection);
    return;
  }
  life_.agree(theirs.terms);
  // A lease that began with this attempt would be over as soon as it counts.
  if (give_up_silent(now, outputs)) return;
  state_ = State::kUp;
  up_at_ = now;
  progressed_ = false;
  last_up_ = connection_;
  unanswered_beat_ = 0;
  confirmed_ = false;
  answered_ = false;
  first_.reset();
  life_.on_up(now);
  // The opener has the answer to its own hello. The other end knows that its hello has arrived when
  // it receives something, which is why something is always sent.
  const bool opened = connection.opener == options_.self;
  if (opened || SINEW_LINK_BUG(kAcceptedIsHeard)) {
    reached_ = true;
    confirm(now, outputs);
  }
  // What is written may have been received. So before there was any contact nothing is, and who is
  // unreachable has surely received nothing.
  if (was_up() || SINEW_LINK_BUG(kWrittenUnheard)) {
    lanes_.on_up(theirs, now, outputs);
  } else {
    first_ = theirs;
  }
  // Some of the lease may be over already.
  beat(0, now, outputs);
}

// The other end has heard our hello, which left when the attempt began, or when its own came.
void Link::confirm(TimePoint now, Outputs& outputs) {
  confirmed_ = true;
  refused_since_.reset();
  failing_since_.reset();
  life_.on_contact(dialled_at_, now);
  if (first_.has_value()) lanes_.on_up(*std::exchange(first_, std::nullopt), now, outputs);
  look_for_suspicion(now, outputs);
}

void Link::on_down(const ConnectionName& connection, DownCause cause, Refusal refusal, bool proved,
                   TimePoint now, Outputs& outputs) {
  if (expire(now, outputs) || connection != connection_) return;
  if (state_ != State::kDialling && state_ != State::kAccepted && state_ != State::kUp) return;
  const bool broke = state_ == State::kUp;
  lanes_.on_down();
  // One that breaks as soon as it is up has not been a success.
  if (broke && (progressed_ || now >= up_at_ + kLongestPause)) failed_attempts_ = 0;
  ++failed_attempts_;
  if (!failing_since_.has_value()) failing_since_ = now;
  Consequence consequence = Consequence::kTryAgain;
  if (cause == DownCause::kAddressRefuses) consequence = Consequence::kCountAsRefused;
  if (cause == DownCause::kRefused) consequence = consequence_of(refusal);
  switch (consequence) {
    case Consequence::kTryAgain:
      refused_since_.reset();
      // The end that had opened it opens the next one; the other one leaves it time for that.
      retry(now, outputs, broke && connection.opener == options_.self);
      break;
    case Consequence::kTryAgainSoon:
      refused_since_.reset();
      back_off(kSoon, now);
      break;
    case Consequence::kLostIfProved:
      if (proved) return end(Gone::kLinkEndedThere, outputs);
      count_refused(now, outputs);
      break;
    case Consequence::kFail:
      // It let us in before, so it may again: certificates are renewed.
      if (this->was_up()) return retry(now, outputs, false);
      count_refused(now, outputs);
      break;
    case Consequence::kCountAsRefused:
      count_refused(now, outputs);
      break;
  }
}

void Link::count_refused(TimePoint now, Outputs& outputs) {
  if (!refused_since_.has_value()) refused_since_ = now;
  // Where this end never got through, a refusal says little of the other end: it may be behind a
  // firewall, and open all connections itself. But then it would have opened one by now.
  const bool reached = reached_ || SINEW_LINK_BUG(kRefusalCounts);
  const nanoseconds fuse = was_up() && !reached ? kUnreachedFuse : kRefusalFuse;
  if (now < *refused_since_ + fuse) return retry(now, outputs, false);
  if (was_up()) return end(Gone::kAddressRefuses, outputs);
  // There never was contact, so no peer is lost; a later use may try again.
  state_ = State::kIdle;
  wanted_ = false;
  failed_attempts_ = 0;
  refused_since_.reset();
  failing_since_.reset();
  outputs.unreachable = true;
}

void Link::retry(TimePoint now, Outputs& outputs, bool soon) {
  if (!is_wanted()) {
    state_ = State::kIdle;
    return;
  }
  if (!was_up() && failing_since_.has_value() && now >= *failing_since_ + options_.terms.lease) {
    refused_since_ = *failing_since_ - kRefusalFuse;
    return count_refused(now, outputs);
  }
  if (soon && failed_attempts_ <= 1) return dial(now, outputs);
  nanoseconds pause = kFirstPause * (1 << std::min(failed_attempts_ - 1, 10));
  // Two ends that lost each other are not to return in step.
  if (!leads()) pause += pause / 2;
  if (refused_since_.has_value()) pause = std::min<nanoseconds>(pause, kRefusalFuse / 4);
  back_off(std::min(pause, kLongestPause), now);
}

void Link::back_off(nanoseconds pause, TimePoint now) {
  state_ = State::kBackingOff;
  retry_at_ = now + pause;
}

// When the present connection is given up if nothing comes of it, or on it: early enough for
// another one within the lease. Some networks swallow all and say nothing.
Link::TimePoint Link::connection_ends() const {
  if (SINEW_LINK_BUG(kSilenceBorne)) return TimePoint::max();
  switch (state_) {
    case State::kDialling:
    case State::kAccepted:
      return dialled_at_ + std::min(kHandshake, life_.smaller_lease() / 3 * (was_up() ? 1 : 2));
    case State::kUp:
      return std::max(up_at_, life_.acknowledged()) + life_.smaller_lease() / 3 * 2;
    case State::kIdle:
    case State::kQueued:
    case State::kBackingOff:
    case State::kEnded:
      break;
  }
  return TimePoint::max();
}

bool Link::give_up_silent(TimePoint now, Outputs& outputs) {
  if (now < connection_ends()) return false;
  const ConnectionName silent = connection_;
  outputs.close.push_back(silent);
  on_down(silent, DownCause::kBroken, Refusal::kNone, false, now, outputs);
  return true;
}

// ---- Time, and the end.

// Looked at before each use, not by the timer alone: a thread may have slept over the end.
bool Link::expire(TimePoint now, Outputs& outputs) {
  if (ended()) return true;
  if (!life_.fenced(now)) return false;
  end(Gone::kSilent, outputs);
  return true;
}

void Link::end(Gone cause, Outputs& outputs) {
  if (state_ == State::kDialling || state_ == State::kAccepted || state_ == State::kUp) {
    outputs.close.push_back(connection_);
  }
  state_ = State::kEnded;
  retry_at_ = TimePoint::max();
  outputs.end = cause;
  lanes_.close(outputs);
}

void Link::on_process_ended(Outputs& outputs) {
  if (ended() || SINEW_LINK_BUG(kProofUnused)) return;
  end(Gone::kProcessEnded, outputs);
}

void Link::close(Outputs& outputs) {
  if (ended()) return;
  // So the other end need not find out by itself.
  if (state_ == State::kUp) outputs.writes.emplace_back().header.is_goodbye = true;
  end(Gone::kLinkClosed, outputs);
}

void Link::poll(TimePoint now, Outputs& outputs) {
  if (expire(now, outputs)) return;
  give_up_silent(now, outputs);
  if (state_ == State::kBackingOff && now >= retry_at_) {
    if (is_wanted()) {
      dial(now, outputs);
    } else {
      state_ = State::kIdle;
      retry_at_ = TimePoint::max();
    }
  }
  if (state_ == State::kUp && now >= life_.next_beat(leads())) {
    beat(std::exchange(unanswered_beat_, 0), now, outputs);
  }
  lanes_.poll(now, outputs);
  look_for_suspicion(now, outputs);
}

Link::TimePoint Link::wake() const {
  if (ended()) return TimePoint::max();
  TimePoint wake = std::min({retry_at_, lanes_.due(), connection_ends()});
  if (life_.had_contact()) {
    wake = std::min(wake, life_.fence_at());
    if (!suspected_) wake = std::min(wake, life_.suspected_at());
  }
  if (state_ == State::kUp) wake = std::min(wake, life_.next_beat(leads()));
  return wake;
}

}  // namespace sinew::internal
