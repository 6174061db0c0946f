#include "sinew/tests/link/support/link_inspector.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "sinew/tests/link/support/outbound.h"

namespace sinew::internal {
namespace {

void add_time(Link::TimePoint time, Link::TimePoint now, Digest& digest) {
  digest.add(time == Link::TimePoint::max() || time == Link::TimePoint::min()
                 ? 1
                 : static_cast<std::uint64_t>((time - now).count()) << 1);
}

}  // namespace

void LinkInspector::add(absl::Span<const NumberRange> ranges, Digest& digest) {
  digest.add(ranges.size());
  for (const NumberRange& range : ranges) {
    digest.add(range.first);
    digest.add(range.last);
  }
}

void LinkInspector::add(const ConnectionName& name, Digest& digest) {
  digest.add(name.opener.value);
  digest.add(name.attempt);
}

void LinkInspector::add(const LinkHeader& header, Digest& digest) {
  digest.add(static_cast<std::uint64_t>(header.kind));
  digest.add(header.number << 1 | (header.is_void ? 1 : 0));
  for (const auto& ranges : header.received) add(ranges, digest);
  digest.add(header.returned_frames);
  digest.add(header.returned_bytes);
  digest.add(header.beat);
  digest.add(header.beat_reply << 1 | (header.is_goodbye ? 1 : 0));
}

void LinkInspector::add(const LinkHello& hello, Digest& digest) {
  add(hello.connection, digest);
  add(hello.last_up, digest);
  for (const auto& ranges : hello.received) add(ranges, digest);
  digest.add(hello.returned_frames);
  digest.add(hello.returned_bytes);
}

void LinkInspector::add(const FrameNumbers& numbers, Digest& digest) {
  add(numbers.all(), digest);
  add(numbers.unreported_, digest);
}

void LinkInspector::add(const LinkLife& life, Link::TimePoint now, Digest& digest) {
  digest.add(life.had_contact_ ? 1 : 0);
  for (const auto time : {life.acknowledged_, life.heard_, life.next_beat_}) {
    add_time(time, now, digest);
  }
  digest.add(life.last_beat_);
  for (const LinkLife::Sent& sent : life.sent_) {
    digest.add(sent.beat);
    add_time(sent.when, now, digest);
  }
}

void LinkInspector::add(const LinkLanes& lanes, Link::TimePoint now, Digest& digest) {
  digest.add((lanes.up_ ? 1 : 0) + (lanes.closed_ ? 2 : 0) + (lanes.theirs_.has_value() ? 4 : 0));
  std::vector<std::tuple<std::uint64_t, std::uint64_t, bool>> frames;
  for (const auto& [token, entry] : lanes.frames_) {
    frames.emplace_back(entry.frame.content->id(), entry.number, entry.given_up);
  }
  std::sort(frames.begin(), frames.end());
  for (const auto& [id, number, given_up] : frames) {
    digest.add(id);
    digest.add(number << 1 | (given_up ? 1 : 0));
  }
  for (const auto& waiting : lanes.waiting_) {
    digest.add(7);
    for (const FrameToken token : waiting) {
      const auto found = lanes.frames_.find(token);
      if (found != lanes.frames_.end()) digest.add(found->second.frame.content->id());
    }
  }
  for (const auto& out : lanes.out_) {
    digest.add(out.last_number);
    digest.add(out.large);
  }
  for (const auto& in : lanes.in_) {
    add(in.numbers, digest);
    for (const std::uint64_t number : in.voided) digest.add(number);
  }
  for (const std::uint64_t value :
       {lanes.sent_frames_, lanes.sent_bytes_, lanes.sent_returned_frames_,
        lanes.sent_returned_bytes_, lanes.arrived_frames_, lanes.arrived_bytes_,
        lanes.returned_frames_, lanes.returned_bytes_, lanes.told_frames_, lanes.told_bytes_,
        lanes.unreceipted_in_bytes_}) {
    digest.add(value);
  }
  for (const std::uint64_t bytes : lanes.announced_bytes_) digest.add(bytes);
  add_time(lanes.receipts_due_, now, digest);
  add_time(lanes.pump_due_, now, digest);
}

void LinkInspector::add(const Link& link, Link::TimePoint now, Digest& digest) {
  digest.add(static_cast<std::uint64_t>(link.state_));
  if (link.ended()) {
    add_time(link.drop_at(), now, digest);
    digest.add(link.life_.had_contact_ ? 1 : 0);
    return;
  }
  add(link.lanes_, now, digest);
  add(link.life_, now, digest);
  digest.add((link.wanted_ ? 1 : 0) + (link.suspected_ ? 2 : 0) + (link.confirmed_ ? 4 : 0) +
             (link.reached_ ? 8 : 0) + (link.answered_ ? 16 : 0) + (link.progressed_ ? 64 : 0) +
             (link.first_.has_value() ? 32 : 0));
  add(link.connection_, digest);
  add(link.last_up_, digest);
  digest.add(link.own_attempts_);
  digest.add(link.their_attempts_);
  // Times that no decision of the state depends on would keep states apart for nothing.
  if (link.connection_ends() != Link::TimePoint::max()) {
    add_time(link.dialled_at_, now, digest);
    add_time(link.up_at_, now, digest);
  }
  add_time(link.retry_at_, now, digest);
  digest.add(static_cast<std::uint64_t>(link.failed_attempts_));
  digest.add(static_cast<std::uint64_t>(link.yielded_));
  for (const auto& since : {link.refused_since_, link.failing_since_}) {
    add_time(since.value_or(Link::TimePoint::max()), now, digest);
  }
  digest.add(link.unanswered_beat_);
}

}  // namespace sinew::internal
