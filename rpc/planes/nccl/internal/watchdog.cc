#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/nccl/internal/core.h"

namespace sinew::internal::nccl {
namespace {

// How late a deadline may be noticed.
constexpr std::chrono::milliseconds kDeadlineTick{10};
// Between two looks at work of others that a device has before a transfer: it may take long.
constexpr std::chrono::milliseconds kReadyTick{1};

}  // namespace

void Core::run_watchdog() {
  pthread_setname_np(pthread_self(), "sinew-nccl-dog");
  // If that fails, so will all that follows.
  (void)options_.device->leave_captures_alone();
  mutex_.lock();
  while (true) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (now >= next_deadline_check_) {
      next_deadline_check_ = now + kDeadlineTick;
      check_deadlines_locked(now);
    }
    check_ready_locked();
    check_events_locked();
    check_teardowns_locked();
    mutex_.unlock();
    transmit();
    mutex_.lock();
    report_locked();
    if (!ended_.empty()) continue;
    if (stopping_ && teardowns_.empty()) break;
    wake_watchdog_.wait_until(mutex_, next_check_locked(now));
  }
  reports_ = false;
  mutex_.unlock();
}

TimePoint Core::next_check_locked(TimePoint now) const {
  bool polls = !teardowns_.empty();
  bool waits = false;
  for (const auto& [id, device] : devices_) {
    for (const CommunicatorPtr& communicator : device->communicators) {
      polls |= !communicator->running.empty();
      waits |= communicator->state != Communicator::State::kReady;
    }
  }
  TimePoint next = now + (polls ? options_.poll_interval : std::chrono::hours(1));
  if (!unready_.empty()) {
    // The latest one comes first of those that take no time.
    const auto waited = now - unready_.back()->since;
    next = std::min(
        next, now + std::clamp<std::chrono::nanoseconds>(
                        waited / 8, options_.poll_interval,
                        std::max<std::chrono::nanoseconds>(options_.poll_interval, kReadyTick)));
  }
  for (const auto& [incarnation, peer] : peers_) {
    waits |= !peer->outgoing.empty() || !peer->incoming.empty();
  }
  return waits ? std::min(next, next_deadline_check_) : next;
}

// ---- What may be promised.

void Core::check_ready_locked() {
  if (unready_.empty()) return;
  const std::vector<TransferPtr> unready = std::exchange(unready_, {});
  std::vector<std::pair<TransferPtr, absl::StatusOr<bool>>> checks;
  for (const TransferPtr& transfer : unready) {
    if (transfer->phase != Transfer::Phase::kEnded) checks.emplace_back(transfer, false);
  }
  mutex_.unlock();
  for (auto& [transfer, ready] : checks) ready = look_ready(*transfer);
  mutex_.lock();
  std::vector<TransferPtr> still;
  for (const auto& [transfer, ready] : checks) {
    if (transfer->phase == Transfer::Phase::kEnded) continue;
    if (!ready.ok()) {
      retract_locked(transfer, absl::UnavailableError(ready.status().message()));
      continue;
    }
    transfer->is_ready = *ready;
    if (!*ready) {
      still.push_back(transfer);
    } else if (transfer->direction == Direction::kOutgoing) {
      post_locked(*transfer->peer, Ready{transfer->ticket});
      promise_locked(transfer);
    } else if (transfer->link != nullptr) {
      // Otherwise the offer is still to come.
      promise_locked(transfer);
    }
  }
  // Others may have arrived meanwhile.
  still.insert(still.end(), unready_.begin(), unready_.end());
  unready_ = std::move(still);
}

// ---- What has ended.

void Core::check_events_locked() {
  struct Check {
    CommunicatorPtr communicator;
    TransferPtr transfer;
    absl::StatusOr<bool> done = false;
  };
  // A stream's transfers end in order, so the first ones tell enough.
  std::vector<Check> checks;
  for (const auto& [id, device] : devices_) {
    for (const CommunicatorPtr& communicator : device->communicators) {
      if (communicator->running.empty()) continue;
      checks.push_back(Check{communicator, communicator->running.front()});
    }
  }
  if (checks.empty()) return;
  mutex_.unlock();
  for (Check& check : checks) check.done = options_.device->is_done(check.transfer->finished);
  mutex_.lock();
  for (const Check& check : checks) {
    Communicator& communicator = *check.communicator;
    if (communicator.closed) continue;
    if (!check.done.ok()) {
      fail_locked(check.communicator, "an error of the device", check.done.status());
    } else if (*check.done) {
      communicator.running.pop_front();
      communicator.link->retry_delay = options_.first_retry_delay;
      on_device_done_locked(check.transfer);
    }
  }
}

void Core::on_device_done_locked(const TransferPtr& transfer) {
  if (transfer->direction == Direction::kIncoming) {
    post_locked(*transfer->peer, Done{transfer->ticket});
  } else if (!transfer->is_delivered) {
    transfer->phase = Transfer::Phase::kDelivering;
    Device& device = device_locked(transfer->buffers.front().device);
    --device.active;
    pump_locked(device);
    return;
  }
  end_locked(transfer, absl::OkStatus());
}

// ---- Deadlines.

void Core::check_deadlines_locked(TimePoint now) {
  std::vector<CommunicatorPtr> late;
  for (const auto& [id, device] : devices_) {
    for (const CommunicatorPtr& communicator : device->communicators) {
      if (communicator->state != Communicator::State::kReady &&
          now >= communicator->connect_deadline) {
        late.push_back(communicator);
      }
    }
  }
  for (const CommunicatorPtr& communicator : late) {
    fail_locked(communicator, "no communicator",
                absl::DeadlineExceededError("it was not there in time"));
  }
  std::vector<TransferPtr> expired;
  for (const auto& [incarnation, peer] : peers_) {
    for (const Direction direction : {Direction::kOutgoing, Direction::kIncoming}) {
      for (const auto& [ticket, transfer] : peer->transfers(direction)) {
        if (now >= transfer->deadline) expired.push_back(transfer);
      }
    }
  }
  for (const TransferPtr& transfer : expired) {
    // One may have taken others with it.
    if (transfer->peer != nullptr) expire_locked(transfer);
  }
}

void Core::expire_locked(const TransferPtr& transfer) {
  const absl::Status late = absl::DeadlineExceededError(
      absl::StrCat("a transfer ", transfer->direction == Direction::kOutgoing ? "to" : "from",
                   " worker '", transfer->peer->worker.name, "' has not ended in time"));
  if (transfer->declined) {
    end_locked(transfer, late);
  } else if (transfer->link == nullptr) {
    // The offer may come yet: it will not be accepted then.
    Peer& peer = *transfer->peer;
    end_locked(transfer, late);
    auto declined = std::make_shared<Transfer>();
    declined->direction = Direction::kIncoming;
    declined->ticket = transfer->ticket;
    declined->peer = &peer;
    declined->declined = true;
    declined->deadline = std::chrono::steady_clock::now() + options_.transfer_timeout;
    peer.incoming[transfer->ticket] = declined;
  } else if (!transfer->is_started() && transfer->retraction.ok()) {
    retract_locked(transfer, late);
  } else {
    Link& link = *transfer->link;
    const absl::Status failure = absl::UnavailableError(late.message());
    news_.push_back(absl::StrCat("NCCL: ", late.message(), "; tensors go by gRPC for now"));
    close_link_locked(link, failure, Cause::kFailed, Tell::kPeer);
  }
}

// ---- Aborts.

void Core::check_teardowns_locked() {
  const TimePoint now = std::chrono::steady_clock::now();
  const std::vector<std::shared_ptr<Teardown>> teardowns(teardowns_.begin(), teardowns_.end());
  for (const std::shared_ptr<Teardown>& teardown : teardowns) {
    const Step step = advance_locked(*teardown, now);
    if (step == Step::kGoesOn) continue;
    if (step == Step::kGivenUp) give_up_locked(*teardown);
    end_transfers_locked(*teardown);
    release_place_locked(*teardown->communicator);
    teardowns_.remove(teardown);
  }
}

void Core::end_transfers_locked(Teardown& teardown) {
  for (const TransferPtr& transfer : std::exchange(teardown.transfers, {})) {
    end_locked(transfer, teardown.status);
  }
}

Core::Step Core::advance_locked(Teardown& teardown, TimePoint now) {
  Communicator& communicator = *teardown.communicator;
  switch (teardown.stage) {
    case Teardown::Stage::kWaitForCall:
      // The launcher's call should return by itself. If it hangs, the abort may free it.
      if (communicator.in_call && now < teardown.deadline) return Step::kGoesOn;
      return begin_abort_locked(teardown, now);
    case Teardown::Stage::kAborting:
      if (!teardown.abort->is_done()) {
        // Its kernels leave soon, while the call may wait for all that the device has to do.
        if (teardown.drained != nullptr && !teardown.transfers.empty() &&
            is_drained_locked(teardown)) {
          end_transfers_locked(teardown);
        }
        return now < teardown.deadline ? Step::kGoesOn : Step::kGivenUp;
      }
      teardown.abort = nullptr;
      teardown.stage = Teardown::Stage::kDraining;
      teardown.deadline = now + options_.abort_timeout;
      return drain_locked(teardown, now);
    case Teardown::Stage::kDraining:
      return drain_locked(teardown, now);
  }
  return Step::kGivenUp;
}

Core::Step Core::begin_abort_locked(Teardown& teardown, TimePoint now) {
  Communicator& communicator = *teardown.communicator;
  if (communicator.in_call) replace_launcher_locked(communicator);
  if (communicator.comm == nullptr) {
    if (communicator.abandoned) return Step::kOver;
    teardown.stage = Teardown::Stage::kDraining;
    return drain_locked(teardown, now);
  }
  ++counters_.aborts;
  // NCCL may be about to launch one, behind which no event can be yet.
  if (communicator.launching == nullptr && !communicator.in_call &&
      communicator.stream != nullptr) {
    record_drained_locked(teardown);
  }
  teardown.abort =
      AbortThread::start(options_.nccl, options_.device, communicator.device, communicator.comm);
  if (teardown.abort == nullptr) return Step::kGivenUp;
  teardown.stage = Teardown::Stage::kAborting;
  teardown.deadline = now + options_.abort_timeout;
  return Step::kGoesOn;
}

// The launcher hangs in a call for this communicator, and all others of the device with it.
void Core::replace_launcher_locked(Communicator& communicator) {
  communicator.abandoned = true;
  ++counters_.threads_left_behind;
  news_.push_back("a call of NCCL does not return: its thread is left behind");
  Device& device = device_locked(communicator.device);
  device.launcher.detach();
  ++device.generation;
  if (!stopping_) start_launcher_locked(device);
}

// Behind all that the communicator has launched.
void Core::record_drained_locked(Teardown& teardown) {
  const Communicator& communicator = *teardown.communicator;
  DeviceApi& device = *options_.device;
  mutex_.unlock();
  const absl::StatusOr<DeviceApi::Event> event = device.create_event(communicator.device);
  bool recorded = false;
  if (event.ok()) {
    recorded = device.record(*event, communicator.device, communicator.stream).ok();
    if (!recorded) device.destroy_event(*event);
  }
  mutex_.lock();
  if (recorded) teardown.drained = *event;
}

bool Core::is_drained_locked(Teardown& teardown) {
  mutex_.unlock();
  const absl::StatusOr<bool> done = options_.device->is_done(teardown.drained);
  mutex_.lock();
  // After an error the device runs nothing more of this process.
  return !done.ok() || *done;
}

// The communicator is gone, and its kernels are about to leave the stream. Once they have, the
// buffers are free.
Core::Step Core::drain_locked(Teardown& teardown, TimePoint now) {
  Communicator& communicator = *teardown.communicator;
  if (communicator.stream == nullptr) return Step::kOver;
  if (teardown.drained == nullptr) record_drained_locked(teardown);
  if (teardown.drained != nullptr && !is_drained_locked(teardown)) {
    return now < teardown.deadline ? Step::kGoesOn : Step::kGivenUp;
  }
  DeviceApi& device = *options_.device;
  mutex_.unlock();
  if (teardown.drained != nullptr) device.destroy_event(teardown.drained);
  device.destroy_stream(communicator.device, communicator.stream);
  mutex_.lock();
  return Step::kOver;
}

void Core::give_up_locked(Teardown& teardown) {
  if (++counters_.threads_left_behind == 1) {
    news_.push_back(
        "NCCL does not let go of a communicator: a thread, and the memory that it may still use, "
        "are left behind until it does");
  }
  std::vector<AbortThread::Owner> owners;
  for (const TransferPtr& transfer : std::exchange(teardown.transfers, {})) {
    for (const DeviceBuffer& buffer : transfer->buffers) owners.push_back(buffer.owner);
    end_locked(transfer, transfer->direction == Direction::kOutgoing
                             ? teardown.status
                             : absl::DataLossError(absl::StrCat(
                                   teardown.status.message(),
                                   "; NCCL does not come to an end, so the device may still write "
                                   "into the memory of the tensors")));
  }
  if (teardown.abort != nullptr) {
    const Communicator& communicator = *teardown.communicator;
    const bool is_left = teardown.abort->leave_behind(
        std::move(owners),
        [weak = weak_from_this(), device = options_.device, id = communicator.device,
         stream = communicator.stream, drained = teardown.drained] {
          if (drained != nullptr) device->destroy_event(drained);
          if (stream != nullptr) device->destroy_stream(id, stream);
          const auto self = weak.lock();
          if (self == nullptr) return;
          MutexLock lock(self->mutex_);
          --self->counters_.threads_left_behind;
        });
    if (is_left) return;
    // It has just come back.
    --counters_.threads_left_behind;
    mutex_.unlock();
    if (teardown.drained != nullptr) options_.device->destroy_event(teardown.drained);
    if (communicator.stream != nullptr) {
      options_.device->destroy_stream(communicator.device, communicator.stream);
    }
    mutex_.lock();
  } else if (!owners.empty()) {
    // Nothing will ever tell that the device is through with them.
    static auto* const mutex = new Mutex();
    static auto* const kept = new std::vector<std::vector<AbortThread::Owner>>();
    MutexLock lock(*mutex);
    kept->push_back(std::move(owners));
  }
}

// ---- Reports.

void Core::report_locked() {
  std::vector<Ended> ended;
  ended.swap(ended_);
  if (ended.empty()) return;
  for (const Ended& end : ended) {
    const Transfer& transfer = *end.transfer;
    const bool outgoing = transfer.direction == Direction::kOutgoing;
    if (end.status.ok()) {
      ++(outgoing ? counters_.transfers_sent : counters_.transfers_received);
      (outgoing ? counters_.bytes_sent : counters_.bytes_received) +=
          static_cast<std::int64_t>(transfer.size_bytes());
    } else if (transfer.on_end != nullptr && !absl::IsCancelled(end.status)) {
      ++counters_.failures;
    }
  }
  mutex_.unlock();
  for (Ended& end : ended) {
    Transfer& transfer = *end.transfer;
    destroy_events(transfer);
    if (transfer.on_end != nullptr) std::move(transfer.on_end)(std::move(end.status));
    transfer.on_end = nullptr;
    transfer.buffers.clear();
  }
  mutex_.lock();
}

}  // namespace sinew::internal::nccl
