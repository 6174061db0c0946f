#include "sinew/tests/support/faulty_link.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace sinew::internal {

absl::Status FaultyLink::send(Lane lane, Frame frame) {
  {
    MutexLock lock(mutex_);
    if (ended_) return absl::UnavailableError("the connection is down");
    if (plan_->frozen) {
      frozen_departures_.push_back({lane, std::move(frame)});
      return absl::OkStatus();
    }
  }
  const std::shared_ptr<Connection> inner = this->inner();
  // Before connect() has returned, or one that a rule failed.
  if (inner == nullptr) return absl::OkStatus();
  absl::Status first;
  for (Frame& passing : apply(FaultDirection::kOutgoing, lane, std::move(frame))) {
    first.Update(inner->send(lane, std::move(passing)));
  }
  return first;
}

void FaultyLink::close(absl::Status reason) {
  if (const std::shared_ptr<Connection> inner = this->inner()) inner->close(std::move(reason));
}

void FaultyLink::on_up(const std::shared_ptr<Connection>& connection) {
  set_inner(connection);
  arrive({Arrival::Kind::kUp, Lane::kControl, {}, {}});
}

void FaultyLink::on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                           std::vector<Frame> frames) {
  set_inner(connection);
  Arrival arrival{Arrival::Kind::kFrames, lane, {}, {}};
  for (Frame& frame : frames) {
    for (Frame& passing : apply(FaultDirection::kIncoming, lane, std::move(frame))) {
      arrival.frames.push_back(std::move(passing));
    }
  }
  if (!arrival.frames.empty()) arrive(std::move(arrival));
}

absl::Status FaultyLink::on_announced(const std::shared_ptr<Connection>&, Lane lane,
                                      absl::string_view header, std::uint64_t size_bytes,
                                      std::size_t payloads) {
  std::shared_ptr<ConnectionHandler> handler;
  {
    MutexLock lock(mutex_);
    if (!told_up_ || plan_->frozen || handler_ == nullptr) return absl::OkStatus();
    handler = handler_;
  }
  return handler->on_announced(shared_from_this(), lane, header, size_bytes, payloads);
}

bool FaultyLink::may_send_ahead() const {
  MutexLock lock(mutex_);
  return handler_ != nullptr && handler_->may_send_ahead();
}

void FaultyLink::on_lost(const std::shared_ptr<Connection>&, Lane lane, absl::string_view header,
                         std::uint64_t size_bytes, std::size_t payloads,
                         const absl::Status& reason) {
  std::shared_ptr<ConnectionHandler> handler;
  {
    MutexLock lock(mutex_);
    if (!told_up_ || ended_ || handler_ == nullptr) return;
    handler = handler_;
  }
  handler->on_lost(shared_from_this(), lane, header, size_bytes, payloads, reason);
}

void FaultyLink::on_down(const std::shared_ptr<Connection>& connection,
                         const absl::Status& reason) {
  if (connection != nullptr) set_inner(connection);
  absl::Status told = reason;
  {
    MutexLock lock(mutex_);
    if (!broken_why_.empty()) told = absl::UnavailableError(broken_why_);
  }
  arrive({Arrival::Kind::kDown, Lane::kControl, {}, std::move(told)});
}

std::vector<Frame> FaultyLink::apply(FaultDirection direction, Lane lane, Frame frame) {
  std::vector<Frame> passing;
  const std::optional<FaultPlan::Impl::Verdict> verdict =
      plan_->decide({direction, lane, frame, address_, remote_hello(), number_, opened_here_});
  if (!verdict.has_value()) {
    passing.push_back(std::move(frame));
  } else {
    switch (verdict->action) {
      case FaultAction::kDrop:
        return passing;
      case FaultAction::kDelay:
        resume_later(verdict->delay, direction, lane, std::move(frame));
        return passing;
      case FaultAction::kDuplicate:
        if (verdict->delay.count() > 0) {
          resume_later(verdict->delay, direction, lane, frame);
          passing.push_back(std::move(frame));
        } else {
          passing.push_back(frame);
          passing.push_back(std::move(frame));
        }
        break;
      case FaultAction::kReorder:
        reorder(*verdict, direction, lane, std::move(frame));
        return passing;
      case FaultAction::kHold:
        plan_->hold(verdict->id, {weak_from_this(), direction, lane, std::move(frame)});
        return passing;
      case FaultAction::kBreak:
        break_now("a fault broke the connection");
        return passing;
      case FaultAction::kNoMemory:
        on_lost(nullptr, lane, frame.header, frame.size_bytes(), frame.payloads.size(),
                absl::ResourceExhaustedError("no memory, as the test wants"));
        return passing;
    }
  }
  for (Frame& overtaken : overtaken_by_one(direction, lane)) {
    passing.push_back(std::move(overtaken));
  }
  return passing;
}

std::vector<Frame> FaultyLink::overtaken_by_one(FaultDirection direction, Lane lane) {
  std::vector<Frame> ripe;
  MutexLock lock(mutex_);
  std::vector<Reordered>& waiting = reordered_locked(direction, lane);
  for (auto frame = waiting.begin(); frame != waiting.end();) {
    if (--frame->behind > 0) {
      ++frame;
      continue;
    }
    ripe.push_back(std::move(frame->frame));
    frame = waiting.erase(frame);
  }
  return ripe;
}

void FaultyLink::reorder(const FaultPlan::Impl::Verdict& verdict, FaultDirection direction,
                         Lane lane, Frame frame) {
  std::uint64_t id = 0;
  {
    MutexLock lock(mutex_);
    id = next_reordered_++;
    reordered_locked(direction, lane).push_back({id, std::move(frame), verdict.behind});
  }
  if (verdict.delay.count() <= 0) return;
  plan_->run_after(verdict.delay, [weak = weak_from_this(), direction, lane, id] {
    const std::shared_ptr<FaultyLink> link = weak.lock();
    if (link == nullptr) return;
    std::optional<Frame> late;
    {
      MutexLock lock(link->mutex_);
      std::vector<Reordered>& waiting = link->reordered_locked(direction, lane);
      auto found = std::find_if(waiting.begin(), waiting.end(),
                                [id](const Reordered& one) { return one.id == id; });
      if (found == waiting.end()) return;
      late = std::move(found->frame);
      waiting.erase(found);
    }
    link->resume(direction, lane, std::move(*late));
  });
}

void FaultyLink::resume_later(std::chrono::nanoseconds delay, FaultDirection direction, Lane lane,
                              Frame frame) {
  plan_->run_after(delay,
                   [weak = weak_from_this(), direction, lane, frame = std::move(frame)]() mutable {
                     if (auto link = weak.lock()) link->resume(direction, lane, std::move(frame));
                   });
}

void FaultyLink::resume(FaultDirection direction, Lane lane, Frame frame) {
  if (direction == FaultDirection::kIncoming) {
    Arrival arrival{Arrival::Kind::kFrames, lane, {}, {}};
    arrival.frames.push_back(std::move(frame));
    arrive(std::move(arrival));
    return;
  }
  {
    MutexLock lock(mutex_);
    if (plan_->frozen && !ended_) {
      frozen_departures_.push_back({lane, std::move(frame)});
      return;
    }
  }
  // Nobody is left to be told of an error: the frame is lost, as frames are when a connection
  // breaks.
  if (const std::shared_ptr<Connection> inner = this->inner()) {
    inner->send(lane, std::move(frame)).IgnoreError();
  }
}

void FaultyLink::break_now(const std::string& why) {
  {
    MutexLock lock(mutex_);
    broken_why_ = why;
  }
  close(absl::UnavailableError(why));
}

void FaultyLink::thaw() {
  std::deque<Departure> departures;
  {
    MutexLock lock(mutex_);
    std::swap(departures, frozen_departures_);
  }
  for (Departure& departure : departures) {
    send(departure.lane, std::move(departure.frame)).IgnoreError();
  }
  drain(Drain::kUnlessFrozen);
}

void FaultyLink::finish() {
  arrive({Arrival::Kind::kDown,
          Lane::kControl,
          {},
          absl::CancelledError("the transport was shut down")});
  // Again when another thread was at it: that one may have stopped because the plan is frozen.
  while (true) {
    drain(Drain::kAlways);
    MutexLock lock(mutex_);
    while (draining_) drained_.wait(mutex_);
    if (arrivals_.empty()) return;
  }
}

void FaultyLink::arrive(Arrival arrival) {
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    ended_ = arrival.kind == Arrival::Kind::kDown;
    arrivals_.push_back(std::move(arrival));
  }
  drain(Drain::kUnlessFrozen);
}

void FaultyLink::drain(Drain how) {
  mutex_.lock();
  if (!draining_) {
    draining_ = true;
    while (!arrivals_.empty() && (how == Drain::kAlways || !plan_->frozen)) {
      Arrival arrival = std::move(arrivals_.front());
      arrivals_.pop_front();
      mutex_.unlock();
      deliver(std::move(arrival));
      mutex_.lock();
    }
    draining_ = false;
    drained_.notify_all();
  }
  mutex_.unlock();
}

void FaultyLink::deliver(Arrival arrival) {
  std::shared_ptr<ConnectionHandler> handler;
  std::array<std::array<std::vector<Reordered>, kLaneCount>, 2> lost;
  std::deque<Departure> unsent;
  const bool last = arrival.kind == Arrival::Kind::kDown;
  {
    MutexLock lock(mutex_);
    handler = handler_;
    if (last) {
      handler_ = nullptr;
      std::swap(lost, reordered_);
      std::swap(unsent, frozen_departures_);
    }
  }
  switch (arrival.kind) {
    case Arrival::Kind::kUp:
      handler->on_up(shared_from_this());
      {
        MutexLock lock(mutex_);
        told_up_ = true;
      }
      break;
    case Arrival::Kind::kFrames:
      handler->on_frames(shared_from_this(), arrival.lane, std::move(arrival.frames));
      break;
    case Arrival::Kind::kDown:
      plan_->forget(shared_from_this(), number_);
      handler->on_down(shared_from_this(), arrival.reason);
      break;
  }
}

}  // namespace sinew::internal
