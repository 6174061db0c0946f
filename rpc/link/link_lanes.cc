#include "sinew/rpc/link/link_lanes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sinew/rpc/link/link_bugs.h"

namespace sinew::internal {
namespace {

// From here on memory of the sender waits for a receipt.
constexpr std::uint64_t kLargeFrameBytes = std::uint64_t{64} << 10;
// What travels outside of a lane has so much at least.
constexpr std::uint64_t kMinPayloadBytes = std::uint64_t{4} << 10;
// Frames that have ended and may stand among those that wait.
constexpr std::size_t kFewEnded = 64;
// For receipts that are waited for.
constexpr auto kReceiptDelay = std::chrono::milliseconds(5);
// How many frames the other end may give up before they arrive. More are sent only by a peer that
// floods.
constexpr std::size_t kMaxVoided = 4096;

// As LinkHeader::time_left says it.
std::chrono::microseconds time_left(LinkLanes::TimePoint deadline, LinkLanes::TimePoint now) {
  if (deadline == LinkLanes::TimePoint::max()) return std::chrono::microseconds(-1);
  return std::max(std::chrono::duration_cast<std::chrono::microseconds>(deadline - now),
                  std::chrono::microseconds(0));
}

}  // namespace

LinkLanes::LinkLanes(LinkLimits own, std::uint64_t send_window_bytes)
    : own_(own), send_window_bytes_(send_window_bytes) {}

// ---- Sending.

bool LinkLanes::has_room(std::uint64_t room) const {
  if (requests_here_bytes_ == 0) return true;
  return requests_here_bytes_ <= send_window_bytes_ &&
         cost(room) <= send_window_bytes_ - requests_here_bytes_;
}

bool LinkLanes::replies_blocked() const {
  // What is kept here for a peer is this end's to bound, whatever window the peer claims.
  const std::uint64_t bound = theirs_.has_value()
                                  ? std::min(theirs_->reply_window_bytes, send_window_bytes_)
                                  : send_window_bytes_;
  return replies_here_bytes_ > bound;
}

bool LinkLanes::may_keep(std::uint64_t bytes) const {
  // What the other end has fetched by itself it says a little later than that it has arrived.
  const std::uint64_t late = 2 * send_window_bytes_ + 4 * largest_bytes_;
  return bytes <= requests_here_bytes_ + replies_here_bytes_ +
                      written_bytes_[index(FrameKind::kControl)] + late;
}

std::size_t LinkLanes::replies_until(FrameToken last) const {
  std::size_t replies = 0;
  for (const auto& [token, entry] : frames_) {
    if (token <= last && entry.frame.kind == FrameKind::kReply) ++replies;
  }
  return replies;
}

FrameToken LinkLanes::send(OutgoingFrame frame, TimePoint now, LinkOutputs& outputs) {
  const FrameToken token = ++last_token_;
  if (closed_) {
    outputs.ended.push_back({std::move(frame.content), FrameEnd::kNotSent});
    return token;
  }
  const FrameKind kind = frame.kind;
  if (kind == FrameKind::kRequest) requests_here_bytes_ += cost(frame.room());
  if (kind == FrameKind::kReply) replies_here_bytes_ += cost(frame.room());
  Entry& entry = frames_.emplace(token, Entry{std::move(frame), 0, false}).first->second;
  // Mostly no other frame is before it.
  const bool nobody_waits =
      std::all_of(std::begin(waiting_), std::end(waiting_),
                  [](const std::deque<FrameToken>& waiting) { return waiting.empty(); });
  if (up_ && nobody_waits && entry.frame.deadline > now && fits_limits(entry.frame) &&
      may_write(entry)) {
    write_first(token, entry, now, outputs);
    return token;
  }
  waiting_[index(kind)].push_back(token);
  pump(now, outputs);
  return token;
}

// Whether the frame may be numbered and written now. What is larger than all the room there is
// passes alone.
bool LinkLanes::may_write(const Entry& entry) const {
  const OutgoingFrame& frame = entry.frame;
  const OutLane& lane = out_[static_cast<std::size_t>(lane_of(frame.kind))];
  if (frame.large && lane.large >= kMaxLargeFrames) return false;
  const std::uint64_t bytes = cost(frame.room());
  if (frame.kind == FrameKind::kRequest) {
    const std::uint64_t out_frames = sent_frames_ - sent_returned_frames_;
    const std::uint64_t out_bytes = sent_bytes_ - sent_returned_bytes_;
    if (SINEW_LINK_BUG(kRoomIgnored)) return true;
    return out_frames == 0 || (out_frames < theirs_->request_window_frames &&
                               out_bytes + bytes <= theirs_->request_window_bytes);
  }
  const std::uint64_t window =
      frame.kind == FrameKind::kReply ? theirs_->reply_window_bytes : theirs_->control_window_bytes;
  const std::uint64_t written = written_bytes_[index(frame.kind)];
  return written == 0 || written + bytes <= window;
}

bool LinkLanes::fits_limits(const OutgoingFrame& frame) const {
  return frame.bytes <= theirs_->max_frame_bytes && frame.payloads <= theirs_->max_payloads &&
         frame.envelope_bytes <= theirs_->max_envelope_bytes;
}

void LinkLanes::pump(TimePoint now, LinkOutputs& outputs) {
  pump_due_ = TimePoint::max();
  if (!up_) return;
  for (const FrameKind kind : {FrameKind::kControl, FrameKind::kReply, FrameKind::kRequest}) {
    std::deque<FrameToken>& waiting = waiting_[index(kind)];
    while (!waiting.empty()) {
      const FrameToken token = waiting.front();
      const auto found = frames_.find(token);
      if (found == frames_.end()) {
        waiting.pop_front();
        continue;
      }
      if (found->second.frame.deadline <= now) {
        // A request stays until its sender gives it up, which it is about to do. The others are not
        // waited for.
        waiting.pop_front();
        if (found->second.frame.kind != FrameKind::kRequest) {
          end(token, FrameEnd::kNotSent, outputs);
        }
        continue;
      }
      if (!fits_limits(found->second.frame)) {
        waiting.pop_front();
        end(token, FrameEnd::kTooLarge, outputs);
        continue;
      }
      if (!may_write(found->second)) break;
      waiting.pop_front();
      write_first(token, found->second, now, outputs);
    }
  }
}

void LinkLanes::write_first(FrameToken token, Entry& entry, TimePoint now, LinkOutputs& outputs) {
  const OutgoingFrame& frame = entry.frame;
  OutLane& lane = out_[static_cast<std::size_t>(lane_of(frame.kind))];
  entry.number = ++lane.last_number;
  lane.written.emplace_hint(lane.written.end(), entry.number, token);
  if (frame.large) ++lane.large;
  largest_bytes_ = std::max(largest_bytes_, cost(frame.room()));
  if (frame.kind == FrameKind::kRequest) {
    ++sent_frames_;
    sent_bytes_ += cost(frame.room());
  } else {
    written_bytes_[index(frame.kind)] += cost(frame.room());
  }
  write(entry, false, now, outputs);
}

void LinkLanes::write(const Entry& entry, bool is_void, TimePoint now, LinkOutputs& outputs) {
  LinkOutputs::Write& write = outputs.writes.emplace_back();
  write.header.kind = entry.frame.kind;
  write.header.number = entry.number;
  write.header.subject = entry.frame.subject;
  write.header.is_void = is_void;
  if (is_void) {
    write.header.bytes = entry.frame.room();
  } else {
    write.content = entry.frame.content;
    write.may_linger = entry.frame.may_linger;
    write.header.time_left = time_left(entry.frame.deadline, now);
  }
  if (is_void || !entry.frame.large) {
    fill_header(write.header);
  } else if (told_frames_ != returned_frames_) {
    // A large frame arrives late, and what it carries is late with it: nothing counts as told. But
    // who has been waiting for it may have much to send then.
    write.header.returned_frames = returned_frames_;
    write.header.returned_bytes = returned_bytes_;
  }
}

LinkLanes::GivenUp LinkLanes::give_up(FrameToken token, TimePoint now, LinkOutputs& outputs) {
  const auto found = frames_.find(token);
  if (found == frames_.end()) return {GivenUp::State::kReceived, 0};
  Entry& entry = found->second;
  if (entry.number == 0) {
    std::deque<FrameToken>& waiting = waiting_[index(entry.frame.kind)];
    end(token, FrameEnd::kNotSent, outputs);
    if (waiting.size() > 2 * frames_.size() + kFewEnded) drop_ended(waiting);
    // Those behind it may fit where it did not.
    if (up_) pump_due_ = now;
    return {GivenUp::State::kNotSent, 0};
  }
  entry.given_up = true;
  if (SINEW_LINK_BUG(kGivenUpEndsAtOnce)) {
    const std::uint64_t number = entry.number;
    end(token, FrameEnd::kReceived, outputs);
    return {GivenUp::State::kOnItsWay, number};
  }
  return {GivenUp::State::kOnItsWay, entry.number};
}

// Without a connection no other code looks at those that wait.
void LinkLanes::drop_ended(std::deque<FrameToken>& waiting) {
  waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                               [this](FrameToken token) { return !frames_.contains(token); }),
                waiting.end());
}

// Takes a frame out of all accounts but those of the receiver's room for requests, which the
// receiver gives back itself.
void LinkLanes::end(FrameToken token, FrameEnd how, LinkOutputs& outputs) {
  const auto found = frames_.find(token);
  if (found == frames_.end()) return;
  const Entry& entry = found->second;
  if (entry.number != 0) {
    out_[static_cast<std::size_t>(lane_of(entry.frame.kind))].written.erase(entry.number);
  }
  end_unlisted(found, how, outputs);
}

// No lane has it among its written ones any more.
void LinkLanes::end_unlisted(FrameMap::iterator found, FrameEnd how, LinkOutputs& outputs) {
  Entry& entry = found->second;
  const FrameKind kind = entry.frame.kind;
  const std::uint64_t bytes = cost(entry.frame.room());
  if (entry.number != 0) {
    if (entry.frame.large) --out_[static_cast<std::size_t>(lane_of(kind))].large;
    if (kind != FrameKind::kRequest) written_bytes_[index(kind)] -= bytes;
  }
  if (kind == FrameKind::kRequest) requests_here_bytes_ -= bytes;
  if (kind == FrameKind::kReply) replies_here_bytes_ -= bytes;
  if (kind != FrameKind::kControl) outputs.room = true;
  outputs.ended.push_back({std::move(entry.frame.content), how});
  frames_.erase(found);
}

void LinkLanes::apply_receipts(Lane lane, const NumberRanges& ranges, LinkOutputs& outputs) {
  OutLane& out = out_[static_cast<std::size_t>(lane)];
  for (const NumberRange& range : ranges) {
    // Only what was written can have arrived: the other end may say anything. Each frame ends as it
    // is met, so that ranges which overlap cost no more than others.
    auto at = out.written.lower_bound(range.first);
    while (at != out.written.end() && at->first <= range.last) {
      const auto found = frames_.find(at->second);
      at = out.written.erase(at);
      end_unlisted(found, FrameEnd::kReceived, outputs);
    }
  }
}

void LinkLanes::on_returned(std::uint64_t frames, std::uint64_t bytes) {
  // Totals grow; older ones come late. More than was sent cannot be given back.
  if (frames > sent_frames_ || bytes > sent_bytes_) return;
  sent_returned_frames_ = std::max(sent_returned_frames_, frames);
  sent_returned_bytes_ = std::max(sent_returned_bytes_, bytes);
}

// ---- Receiving.

bool LinkLanes::announce(const LinkHeader& header, std::uint64_t room) {
  if (header.kind == FrameKind::kLink || header.number == 0 || header.is_void) return false;
  std::uint64_t taken = announced_bytes_[index(header.kind)];
  std::uint64_t window = own_.reply_window_bytes;
  if (header.kind == FrameKind::kRequest) {
    taken += arrived_bytes_ - returned_bytes_;
    window = own_.request_window_bytes;
  } else if (header.kind == FrameKind::kControl) {
    window = own_.control_window_bytes;
  }
  if (taken != 0 && (taken > window || cost(room) > window - taken)) return false;
  if (announced_.size() >= kLaneCount * kMaxLargeFrames) return false;
  const Announced announced{header.kind, cost(room)};
  if (!announced_.emplace(std::make_pair(lane_of(header.kind), header.number), announced).second) {
    return false;
  }
  announced_bytes_[index(header.kind)] += announced.cost;
  return true;
}

LinkLanes::Delivery LinkLanes::on_frame(const LinkHeader& header, std::uint64_t room, TimePoint now,
                                        LinkOutputs& outputs) {
  for (const Lane lane : {Lane::kControl, Lane::kCalls}) {
    apply_receipts(lane, header.received[static_cast<std::size_t>(lane)], outputs);
  }
  if (header.returned_frames != 0) on_returned(header.returned_frames, header.returned_bytes);
  Delivery delivery = Delivery::kDrop;
  if (header.kind != FrameKind::kLink) {
    if (const auto found = announced_.find({lane_of(header.kind), header.number});
        found != announced_.end()) {
      // It may come as another kind than it was announced as.
      announced_bytes_[index(found->second.kind)] -= found->second.cost;
      announced_.erase(found);
    }
    FrameNumbers& numbers = in_[static_cast<std::size_t>(lane_of(header.kind))].numbers;
    switch (numbers.add(header.number, FrameNumbers::Report::kLater)) {
      case FrameNumbers::Arrival::kRefused:
        return Delivery::kViolation;
      case FrameNumbers::Arrival::kRepeated:
        if (SINEW_LINK_BUG(kRepetitionDelivered)) delivery = Delivery::kDeliver;
        break;
      case FrameNumbers::Arrival::kNew:
        delivery = take_new(header, room, now, outputs);
        if (delivery == Delivery::kViolation) return delivery;
        break;
    }
  }
  pump(now, outputs);
  return delivery;
}

LinkLanes::Delivery LinkLanes::take_new(const LinkHeader& header, std::uint64_t room, TimePoint now,
                                        LinkOutputs& outputs) {
  InLane& in = in_[static_cast<std::size_t>(lane_of(header.kind))];
  const auto voided = std::find(in.voided.begin(), in.voided.end(), header.number);
  const bool given_up = header.is_void || voided != in.voided.end();
  if (voided != in.voided.end()) in.voided.erase(voided);
  const bool delivers = !given_up || SINEW_LINK_BUG(kVoidDelivered);
  const bool waits = delivers && header.is_note();
  if (!waits) in.numbers.report(header.number);
  const std::uint64_t size = header.is_void ? header.bytes : room;
  if (size > room_of(own_.max_frame_bytes, own_.max_payloads)) return Delivery::kViolation;
  if (header.kind == FrameKind::kRequest) {
    const std::uint64_t waiting_frames = arrived_frames_ - returned_frames_;
    const std::uint64_t waiting_bytes = arrived_bytes_ - returned_bytes_;
    const bool fits =
        waiting_frames == 0 || (waiting_frames < own_.request_window_frames &&
                                waiting_bytes + cost(size) <= own_.request_window_bytes);
    // A number that counts as arrived while the frame does not would be lost permanently. But a
    // peer that sends beyond the window is not served at all.
    if (!fits) return Delivery::kViolation;
    ++arrived_frames_;
    arrived_bytes_ += cost(size);
    if (given_up) return_room(1, cost(size), now, outputs);
  }
  if (!waits) note_receipt(header, size, now, outputs);
  return delivers ? Delivery::kDeliver : Delivery::kDrop;
}

// Only by the timer, so that it may be called under any lock.
void LinkLanes::handled(std::uint64_t number, std::uint64_t room, TimePoint now) {
  // Without a connection the next hello tells that it has arrived.
  if (!up_ || SINEW_LINK_BUG(kHandledForgotten)) return;
  in_[static_cast<std::size_t>(Lane::kControl)].numbers.report(number);
  unreceipted_in_bytes_ += cost(room);
  const bool much = unreceipted_in_bytes_ >= own_.control_window_bytes / 4;
  receipts_due_ = std::min(receipts_due_, much ? now : now + kReceiptDelay);
}

void LinkLanes::note_receipt(const LinkHeader& header, std::uint64_t room, TimePoint now,
                             LinkOutputs& outputs) {
  unreceipted_in_bytes_ += cost(room);
  const std::uint64_t window =
      header.kind == FrameKind::kControl ? own_.control_window_bytes : own_.reply_window_bytes;
  if (room >= kMinPayloadBytes) ++unreceipted_in_large_;
  if (unreceipted_in_bytes_ >= window / 4 || unreceipted_in_large_ >= kMaxLargeFrames / 4) {
    send_link_frame(outputs);
  } else if (unreceipted_in_bytes_ >= kLargeFrameBytes) {
    receipts_due_ = std::min(receipts_due_, now + kReceiptDelay);
  }
}

bool LinkLanes::void_incoming(Lane lane, std::uint64_t number) {
  InLane& in = in_[static_cast<std::size_t>(lane)];
  if (number == 0 || in.numbers.contains(number) || in.voided.size() >= kMaxVoided) return false;
  if (SINEW_LINK_BUG(kCancelForgotten)) return true;
  in.voided.push_back(number);
  return true;
}

void LinkLanes::return_room(std::uint64_t requests, std::uint64_t costs, TimePoint now,
                            LinkOutputs& outputs) {
  if (!SINEW_LINK_BUG(kRoomNotReturned)) {
    returned_frames_ += requests;
    returned_bytes_ += costs;
  }
  // Mostly the reply tells it. The other end may wait for it when much of its room is free again,
  // or all of it, since what is larger than the room passes alone: that is less urgent.
  const std::uint64_t untold = returned_bytes_ - told_bytes_;
  const bool much = untold >= own_.request_window_bytes / 4 ||
                    returned_frames_ - told_frames_ >= own_.request_window_frames / 4;
  const bool all = returned_frames_ == arrived_frames_ && untold >= kLargeFrameBytes;
  if (much) {
    send_link_frame(outputs);
  } else if (all && up_) {
    receipts_due_ = std::min(receipts_due_, now + kReceiptDelay);
  }
}

// ---- Connections.

void LinkLanes::fill_header(LinkHeader& header) {
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    header.received[lane] = in_[lane].numbers.take_unreported();
  }
  unreceipted_in_bytes_ = 0;
  unreceipted_in_large_ = 0;
  const bool more = in_[0].numbers.has_unreported() || in_[1].numbers.has_unreported();
  receipts_due_ = more ? TimePoint::min() : TimePoint::max();
  if (told_frames_ != returned_frames_) {
    header.returned_frames = told_frames_ = returned_frames_;
    header.returned_bytes = told_bytes_ = returned_bytes_;
  }
}

void LinkLanes::send_link_frame(LinkOutputs& outputs) {
  // Without a connection the next hello tells all.
  if (!up_) return;
  fill_header(outputs.writes.emplace_back().header);
}

void LinkLanes::poll(TimePoint now, LinkOutputs& outputs) {
  if (receipts_due_ <= now) {
    receipts_due_ = TimePoint::max();
    send_link_frame(outputs);
  }
  pump(now, outputs);
}

void LinkLanes::fill_hello(LinkHello& own) const {
  own.limits = own_;
  for (std::size_t lane = 0; lane < kLaneCount; ++lane)
    own.received[lane] = in_[lane].numbers.all();
  own.returned_frames = returned_frames_;
  own.returned_bytes = returned_bytes_;
}

void LinkLanes::on_up(const LinkHello& theirs, TimePoint now, LinkOutputs& outputs) {
  theirs_ = theirs.limits;
  up_ = true;
  // The hello that led here said all that has arrived, as nothing arrives between the two. But
  // handlers may have started since: the room is told again.
  for (InLane& lane : in_) lane.numbers.all_reported();
  told_frames_ = SINEW_LINK_BUG(kRoomToldOnce) ? returned_frames_ : 0;
  told_bytes_ = SINEW_LINK_BUG(kRoomToldOnce) ? returned_bytes_ : 0;
  on_returned(theirs.returned_frames, theirs.returned_bytes);
  for (const Lane lane : {Lane::kControl, Lane::kCalls}) {
    apply_receipts(lane, theirs.received[static_cast<std::size_t>(lane)], outputs);
  }
  for (const OutLane& lane : out_) {
    for (const auto& [number, token] : lane.written) {
      const Entry& entry = frames_.at(token);
      if (SINEW_LINK_BUG(kNotSentAgain)) continue;
      const bool of_use = !entry.given_up && entry.frame.deadline > now;
      write(entry, !of_use && !SINEW_LINK_BUG(kGivenUpSentAgain), now, outputs);
    }
  }
  pump(now, outputs);
  if (told_frames_ != returned_frames_) send_link_frame(outputs);
}

void LinkLanes::on_down() {
  up_ = false;
  // What was announced on it does not come any more.
  announced_.clear();
  for (std::uint64_t& bytes : announced_bytes_) bytes = 0;
  receipts_due_ = pump_due_ = TimePoint::max();
}

void LinkLanes::close(LinkOutputs& outputs) {
  closed_ = true;
  up_ = false;
  receipts_due_ = pump_due_ = TimePoint::max();
  std::vector<std::pair<FrameToken, bool>> tokens;
  tokens.reserve(frames_.size());
  for (const auto& [token, entry] : frames_) tokens.emplace_back(token, entry.number != 0);
  std::sort(tokens.begin(), tokens.end());
  for (const auto& [token, written] : tokens) {
    end(token, written ? FrameEnd::kLinkEnded : FrameEnd::kNotSent, outputs);
  }
  for (auto& waiting : waiting_) waiting.clear();
}

}  // namespace sinew::internal
