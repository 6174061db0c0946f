// The events of InprocCore: when they become possible, which one is next, and what they do.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/transport/inproc/internal/inproc_core.h"

namespace sinew::internal {
namespace {

using Kind = InprocEvent::Kind;
using Phase = InprocSide::Phase;

// A larger frame would not travel in one piece between processes.
constexpr std::size_t kAnnouncedBytes = std::size_t{64} << 10;

/// Asks the handler about the frames that would be announced there. Those that it has no room for
/// are lost.
absl::Status announce(const std::shared_ptr<InprocConnection>& connection,
                      ConnectionHandler& handler, Lane lane, std::vector<Frame>& frames) {
  absl::Status wrong;
  const auto is_lost = [&](const Frame& frame) {
    const std::size_t size_bytes = frame.size_bytes();
    if (size_bytes <= kAnnouncedBytes || !wrong.ok()) return false;
    const std::size_t payloads = frame.payloads.size();
    const absl::Status admitted =
        handler.on_announced(connection, lane, frame.header, size_bytes, payloads);
    if (!absl::IsResourceExhausted(admitted)) {
      wrong = admitted;
      return false;
    }
    handler.on_lost(connection, lane, frame.header, size_bytes, payloads, admitted);
    return true;
  };
  frames.erase(std::remove_if(frames.begin(), frames.end(), is_lost), frames.end());
  return wrong;
}

InprocEvent describe_event(const InprocEndpoint& endpoint, const InprocPendingEvent& event) {
  InprocEvent shown;
  shown.kind = event.kind;
  shown.at = endpoint.address;
  shown.lane = event.lane;
  if (event.link != nullptr) {
    shown.connection = event.link->number;
    shown.at_opener = event.end == InprocEnd::kOpener;
    const InprocSide& other = event.link->side(other_end(event.end));
    if (other.endpoint != nullptr) shown.from = other.endpoint->address;
  }
  return shown;
}

}  // namespace

void InprocCore::schedule_locked(const std::shared_ptr<InprocEndpoint>& endpoint,
                                 InprocPendingEvent event) {
  if (endpoint->finished) return;
  event.sequence = next_sequence_++;
  endpoint->events.push_back(std::move(event));
  endpoint->changed.notify_one();
}

void InprocCore::schedule_frames_locked(const std::shared_ptr<InprocLink>& link, InprocEnd end,
                                        Lane lane) {
  InprocSide& side = link->side(end);
  InprocSide::LaneQueue& queue = side.lanes[static_cast<std::size_t>(lane)];
  if (side.phase != Phase::kUp || queue.scheduled || queue.frames.empty()) return;
  queue.scheduled = true;
  InprocPendingEvent event;
  event.kind = Kind::kFrames;
  event.link = link;
  event.end = end;
  event.lane = lane;
  schedule_locked(side.endpoint, std::move(event));
}

void InprocCore::schedule_lanes_locked(const std::shared_ptr<InprocLink>& link, InprocEnd end) {
  schedule_frames_locked(link, end, Lane::kControl);
  schedule_frames_locked(link, end, Lane::kCalls);
}

void InprocCore::seal_locked(const std::shared_ptr<InprocLink>& link, InprocEnd end,
                             absl::Status reason) {
  InprocSide& side = link->side(end);
  if (!side.down_reason.ok()) return;
  side.down_reason = std::move(reason);
  // An acceptor that has not been asked yet, or refused, has no handler to tell.
  if (side.handler == nullptr) return;
  InprocPendingEvent event;
  event.kind = Kind::kDown;
  event.link = link;
  event.end = end;
  schedule_locked(side.endpoint, std::move(event));
}

void InprocCore::expire_connects_locked(InprocEndpoint& endpoint) {
  if (endpoint.connect_deadlines.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  while (!endpoint.connect_deadlines.empty() && endpoint.connect_deadlines.begin()->first <= now) {
    const std::shared_ptr<InprocLink> link = endpoint.connect_deadlines.begin()->second.lock();
    endpoint.connect_deadlines.erase(endpoint.connect_deadlines.begin());
    if (link == nullptr || link->side(InprocEnd::kOpener).phase != Phase::kWaiting) continue;
    const absl::Status reason = absl::UnavailableError(
        absl::StrCat(link->side(InprocEnd::kAcceptor).endpoint->address, " did not answer within ",
                     endpoint.limits.connect_timeout.count(), " ms"));
    seal_locked(link, InprocEnd::kOpener, reason);
    seal_locked(link, InprocEnd::kAcceptor, reason);
  }
}

void InprocCore::wait_locked(InprocEndpoint& endpoint) {
  if (endpoint.connect_deadlines.empty()) {
    endpoint.changed.wait(mutex_);
    return;
  }
  endpoint.changed.wait_until(mutex_, endpoint.connect_deadlines.begin()->first);
}

std::vector<InprocCore::Candidate> InprocCore::candidates_locked() {
  std::vector<Candidate> candidates;
  for (const std::shared_ptr<InprocEndpoint>& endpoint : endpoints_) {
    if (endpoint->frozen || endpoint->running) continue;
    for (auto event = endpoint->events.begin(); event != endpoint->events.end(); ++event) {
      candidates.push_back({endpoint, event});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.event->sequence < b.event->sequence;
  });
  return candidates;
}

std::size_t InprocCore::choose_locked(const std::vector<Candidate>& candidates) {
  if (!chooser_) return 0;
  std::vector<InprocEvent> shown;
  shown.reserve(candidates.size());
  for (const Candidate& candidate : candidates) {
    shown.push_back(describe_event(*candidate.endpoint, *candidate.event));
  }
  return std::min(chooser_(shown), candidates.size() - 1);
}

InprocPendingEvent InprocCore::take_locked(const Candidate& candidate) {
  InprocPendingEvent event = std::move(*candidate.event);
  candidate.endpoint->events.erase(candidate.event);
  candidate.endpoint->running = true;
  return event;
}

std::vector<InprocEvent> InprocCore::events() {
  MutexLock lock(mutex_);
  std::vector<InprocEvent> shown;
  for (const Candidate& candidate : candidates_locked()) {
    shown.push_back(describe_event(*candidate.endpoint, *candidate.event));
  }
  return shown;
}

bool InprocCore::step() {
  std::shared_ptr<InprocEndpoint> endpoint;
  InprocPendingEvent event;
  {
    MutexLock lock(mutex_);
    const std::vector<Candidate> candidates = candidates_locked();
    if (candidates.empty()) return false;
    const Candidate& chosen = candidates[choose_locked(candidates)];
    endpoint = chosen.endpoint;
    event = take_locked(chosen);
  }
  run(endpoint, std::move(event));
  return true;
}

void InprocCore::run(const std::shared_ptr<InprocEndpoint>& endpoint, InprocPendingEvent event) {
  switch (event.kind) {
    case Kind::kConnect:
      run_connect(event.link);
      break;
    case Kind::kUp:
      run_up(event.link);
      break;
    case Kind::kFrames:
      run_frames(event.link, event.end, event.lane);
      break;
    case Kind::kDown:
      run_down(event.link, event.end);
      break;
    case Kind::kUnaryCall:
      run_unary_call(event.unary);
      break;
    case Kind::kUnaryCancel:
      run_unary_cancel(event.unary);
      break;
  }
  // What the event kept alive goes before the endpoint counts as quiet: its destruction may run the
  // user's code.
  event = InprocPendingEvent();
  MutexLock lock(mutex_);
  endpoint->running = false;
  if (mode_ == InprocMode::kStepped) endpoint->changed.notify_all();
}

absl::Status InprocCore::check_identity(const InprocLink& link, const InprocEndpoint& acceptor) {
  const std::vector<std::string>& names = acceptor.identity.names;
  if (names.empty() || link.expected_name.empty() ||
      std::find(names.begin(), names.end(), link.expected_name) != names.end()) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(absl::StrCat(acceptor.address, " proves to be ",
                                                 absl::StrJoin(names, ", "), ", not \"",
                                                 link.expected_name, "\""));
}

void InprocCore::run_connect(const std::shared_ptr<InprocLink>& link) {
  std::shared_ptr<InprocEndpoint> here;
  AuthenticatedPeer opener;
  {
    MutexLock lock(mutex_);
    const InprocSide& side = link->side(InprocEnd::kOpener);
    if (!side.down_reason.ok()) return;
    opener = side.endpoint->identity;
    here = link->side(InprocEnd::kAcceptor).endpoint;
    if (absl::Status wrong = check_identity(*link, *here); !wrong.ok()) {
      seal_locked(link, InprocEnd::kOpener, std::move(wrong));
      return;
    }
  }
  absl::StatusOr<Acceptor::Accepted> accepted =
      here->acceptor->on_connection(link->opener_hello, opener);
  if (!accepted.ok()) {
    MutexLock lock(mutex_);
    seal_locked(link, InprocEnd::kOpener, accepted.status());
    return;
  }
  auto connection =
      std::make_shared<InprocConnection>(shared_from_this(), link, InprocEnd::kAcceptor);
  connection->set_remote(link->opener_hello, std::move(opener));
  {
    MutexLock lock(mutex_);
    InprocSide& side = link->side(InprocEnd::kAcceptor);
    side.connection = connection;
    side.handler = accepted->handler;
    side.phase = Phase::kUp;
    // If the link broke meanwhile there was no handler to tell: finish_accept() does that, after
    // on_up.
    side.down_reason = absl::OkStatus();
    here->links.insert(link);
    const InprocSide& opener_side = link->side(InprocEnd::kOpener);
    if (opener_side.down_reason.ok()) {
      opener_side.connection->set_remote(std::move(accepted->hello), here->identity);
    }
  }
  accepted->handler->on_up(connection);
  finish_accept(link);
}

void InprocCore::finish_accept(const std::shared_ptr<InprocLink>& link) {
  MutexLock lock(mutex_);
  const InprocSide& opener = link->side(InprocEnd::kOpener);
  const InprocSide& acceptor = link->side(InprocEnd::kAcceptor);
  if (acceptor.endpoint->closing) {
    seal_locked(link, InprocEnd::kAcceptor,
                absl::CancelledError(absl::StrCat(acceptor.endpoint->address, " shuts down")));
    seal_locked(link, InprocEnd::kOpener,
                absl::UnavailableError(absl::StrCat(acceptor.endpoint->address, " shut down")));
  }
  if (!opener.down_reason.ok()) {
    seal_locked(link, InprocEnd::kAcceptor,
                absl::UnavailableError(absl::StrCat("the opener left during the handshake: ",
                                                    opener.down_reason.message())));
    return;
  }
  schedule_lanes_locked(link, InprocEnd::kAcceptor);
  InprocPendingEvent event;
  event.kind = Kind::kUp;
  event.link = link;
  event.end = InprocEnd::kOpener;
  schedule_locked(opener.endpoint, std::move(event));
}

void InprocCore::run_up(const std::shared_ptr<InprocLink>& link) {
  std::shared_ptr<InprocConnection> connection;
  std::shared_ptr<ConnectionHandler> handler;
  {
    MutexLock lock(mutex_);
    InprocSide& side = link->side(InprocEnd::kOpener);
    if (!side.down_reason.ok()) return;
    side.phase = Phase::kUp;
    connection = side.connection;
    handler = side.handler;
  }
  handler->on_up(connection);
  MutexLock lock(mutex_);
  schedule_lanes_locked(link, InprocEnd::kOpener);
}

std::vector<Frame> InprocCore::take_frames_locked(const std::shared_ptr<InprocLink>& link,
                                                  InprocEnd end, Lane lane) {
  InprocSide& side = link->side(end);
  InprocSide::LaneQueue& queue = side.lanes[static_cast<std::size_t>(lane)];
  const Transport::Limits& limits = side.endpoint->limits;
  std::vector<Frame> frames;
  while (!queue.frames.empty() && frames.size() < max_frames_per_event_) {
    Frame& front = queue.frames.front();
    const std::size_t bytes = front.size_bytes();
    if (bytes > limits.max_frame_bytes || front.payloads.size() > limits.max_payloads) {
      const absl::Status reason = absl::ResourceExhaustedError(
          absl::StrCat(link->side(other_end(end)).endpoint->address, " sent a frame of ", bytes,
                       " bytes and ", front.payloads.size(), " payloads; ", side.endpoint->address,
                       " accepts ", limits.max_frame_bytes, " and ", limits.max_payloads));
      seal_locked(link, end, reason);
      seal_locked(link, other_end(end), reason);
      break;
    }
    frames.push_back(std::move(front));
    queue.frames.pop_front();
  }
  return frames;
}

void InprocCore::run_frames(const std::shared_ptr<InprocLink>& link, InprocEnd end, Lane lane) {
  std::shared_ptr<InprocConnection> connection;
  std::shared_ptr<ConnectionHandler> handler;
  std::vector<Frame> frames;
  {
    MutexLock lock(mutex_);
    InprocSide& side = link->side(end);
    side.lanes[static_cast<std::size_t>(lane)].scheduled = false;
    if (side.phase != Phase::kUp) return;
    frames = take_frames_locked(link, end, lane);
    connection = side.connection;
    handler = side.handler;
  }
  if (frames.empty()) return;
  if (absl::Status refused = announce(connection, *handler, lane, frames); !refused.ok()) {
    refuse_frames(link, end, refused);
    return;
  }
  if (!frames.empty()) handler->on_frames(connection, lane, std::move(frames));
  MutexLock lock(mutex_);
  if (link->side(end).down_reason.ok()) schedule_frames_locked(link, end, lane);
}

void InprocCore::refuse_frames(const std::shared_ptr<InprocLink>& link, InprocEnd end,
                               const absl::Status& reason) {
  std::array<InprocSide::LaneQueue, kLaneCount> dropped;
  MutexLock lock(mutex_);
  std::swap(dropped, link->side(end).lanes);
  seal_locked(link, end, reason);
  seal_locked(link, other_end(end),
              absl::UnavailableError(absl::StrCat("closed by the other end: ", reason.message())));
}

void InprocCore::run_down(const std::shared_ptr<InprocLink>& link, InprocEnd end) {
  std::array<InprocSide::LaneQueue, kLaneCount> dropped;
  std::array<InprocSide::LaneQueue, kLaneCount> never_accepted;
  std::shared_ptr<InprocConnection> connection;
  std::shared_ptr<ConnectionHandler> handler;
  absl::Status reason;
  {
    MutexLock lock(mutex_);
    InprocSide& side = link->side(end);
    side.phase = Phase::kDown;
    std::swap(dropped, side.lanes);
    InprocSide& other = link->side(other_end(end));
    if (other.phase == Phase::kWaiting) std::swap(never_accepted, other.lanes);
    connection = std::move(side.connection);
    handler = std::move(side.handler);
    reason = side.down_reason;
    // A connection to oneself is listed once and has two ends.
    const bool other_end_here = other.endpoint == side.endpoint && other.handler != nullptr;
    if (!other_end_here) side.endpoint->links.erase(link);
  }
  handler->on_down(connection, reason);
}

}  // namespace sinew::internal
