#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/nccl/internal/core.h"

// The thread of one device that makes all calls for its communicators, except for aborts. It never
// waits for a peer: whatever NCCL has not finished it looks at again later. A call that does not
// return all the same is the watchdog's affair, which closes the communicator meanwhile.

namespace sinew::internal::nccl {

// What a launch needs, even if the transfer has been given up meanwhile.
struct Core::Launch {
  CommunicatorPtr communicator;
  NcclApi::Comm comm = nullptr;
  DeviceApi::Stream stream = nullptr;
  Direction direction = Direction::kOutgoing;
  std::vector<DeviceBuffer> buffers;
};

void Core::start_launcher_locked(Device& device) {
  device.launcher_ended = false;
  try {
    device.launcher =
        std::thread([self = shared_from_this(), &device, generation = device.generation] {
          self->run_launcher(device, generation);
        });
  } catch (const std::system_error& error) {
    // Its communicators will not be there in time; the next one tries again.
    news_.push_back(absl::StrCat("there is no thread for NCCL: ", error.what()));
  }
}

void Core::run_launcher(Device& device, int generation) {
  pthread_setname_np(pthread_self(), "sinew-nccl");
  // If that fails, so will all that follows.
  (void)options_.device->bind_thread(device.id);
  mutex_.lock();
  while (!stopping_ && device.generation == generation) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (const CommunicatorPtr communicator = next_step_locked(device, now)) {
      step_locked(communicator);
      mutex_.unlock();
      transmit();
      mutex_.lock();
    } else {
      device.wake.wait_until(mutex_, next_poll_locked(device, now));
    }
  }
  if (device.generation == generation) {
    device.launcher_ended = true;
  } else {
    // It was left behind, and comes back after all.
    --counters_.threads_left_behind;
  }
  changed_.notify_all();
  mutex_.unlock();
}

// In turns, so that none waits for the others' transfers.
CommunicatorPtr Core::next_step_locked(Device& device, TimePoint now) {
  using State = Communicator::State;
  const std::size_t count = device.communicators.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = (device.next_communicator + i) % count;
    const CommunicatorPtr& candidate = device.communicators[index];
    const bool has_call = candidate->state == State::kNeedsId ||
                          candidate->state == State::kHasId ||
                          (candidate->state == State::kReady && candidate->launching == nullptr &&
                           !candidate->to_launch.empty());
    const bool has_poll = candidate->state == State::kConnecting ||
                          candidate->launching != nullptr || !candidate->running.empty();
    if (has_call || (has_poll && now >= candidate->next_poll)) {
      device.next_communicator = index + 1;
      return candidate;
    }
  }
  return nullptr;
}

TimePoint Core::next_poll_locked(const Device& device, TimePoint now) const {
  TimePoint next = now + std::chrono::hours(1);
  for (const CommunicatorPtr& communicator : device.communicators) {
    if (communicator->state == Communicator::State::kConnecting ||
        communicator->launching != nullptr || !communicator->running.empty()) {
      next = std::min(next, communicator->next_poll);
    }
  }
  return next;
}

void Core::step_locked(const CommunicatorPtr& communicator) {
  communicator->next_poll = std::chrono::steady_clock::now() + options_.poll_interval;
  communicator->in_call = true;
  if (communicator->state == Communicator::State::kNeedsId) {
    get_id_locked(communicator);
  } else if (communicator->state == Communicator::State::kHasId) {
    connect_locked(communicator);
  } else if (communicator->state == Communicator::State::kReady &&
             communicator->launching == nullptr && !communicator->to_launch.empty()) {
    launch_locked(communicator);
  } else {
    poll_locked(communicator);
  }
  communicator->in_call = false;
  if (communicator->closed) wake_watchdog_.notify_all();
}

void Core::get_id_locked(const CommunicatorPtr& communicator) {
  mutex_.unlock();
  absl::StatusOr<std::string> id = options_.nccl->get_unique_id();
  mutex_.lock();
  if (communicator->closed) return;
  if (!id.ok()) {
    fail_locked(communicator, "no id for a communicator", id.status());
    return;
  }
  communicator->id = *std::move(id);
  communicator->state = Communicator::State::kHasId;
  const Link& link = *communicator->link;
  post_locked(*link.peer, Open{link.key, communicator->epoch, version_, communicator->id});
}

void Core::connect_locked(const CommunicatorPtr& communicator) {
  const std::string id = communicator->id;
  mutex_.unlock();
  const absl::StatusOr<DeviceApi::Stream> stream =
      options_.device->create_stream(communicator->device);
  NcclApi::Initialised initialised;
  if (stream.ok()) {
    initialised = options_.nccl->init_rank(id, communicator->rank, options_.max_ctas);
  } else {
    initialised.status = stream.status();
  }
  mutex_.lock();
  if (communicator->abandoned) {
    // No other thread knows them, and this thread may wait as long as it takes.
    mutex_.unlock();
    if (initialised.comm != nullptr) (void)options_.nccl->abort(initialised.comm);
    if (stream.ok()) options_.device->destroy_stream(communicator->device, *stream);
    mutex_.lock();
    return;
  }
  // Also where it is closed by now: there is more to be torn down.
  if (stream.ok()) communicator->stream = *stream;
  communicator->comm = initialised.comm;
  if (communicator->closed) return;
  if (!initialised.status.ok()) {
    fail_locked(communicator, "no communicator", initialised.status);
    return;
  }
  communicator->state = Communicator::State::kConnecting;
}

// Its communicator is aborted, or about to be, although this thread was in a call for it.
bool Core::is_abandoned(const Launch& launch) {
  MutexLock lock(mutex_);
  return launch.communicator->abandoned;
}

absl::StatusOr<NcclProgress> Core::run(const Launch& launch) {
  NcclApi& nccl = *options_.nccl;
  absl::Status status = nccl.group_start();
  if (!status.ok()) return status;
  for (const DeviceBuffer& buffer : launch.buffers) {
    if (buffer.size_bytes == 0) continue;
    status = launch.direction == Direction::kOutgoing
                 ? nccl.send(launch.comm, buffer.data, buffer.size_bytes, launch.stream)
                 : nccl.recv(launch.comm, buffer.data, buffer.size_bytes, launch.stream);
    // The group is left open: it holds a communicator that is gone, and this thread ends.
    if (is_abandoned(launch)) return absl::CancelledError("given up");
    if (!status.ok()) break;
  }
  // A group that was begun must be ended, also after an error.
  absl::StatusOr<NcclProgress> ended = nccl.group_end();
  if (!status.ok()) return status;
  return ended;
}

void Core::launch_locked(const CommunicatorPtr& communicator) {
  const TransferPtr transfer = communicator->to_launch.front();
  communicator->to_launch.pop_front();
  // From here on the device may touch the buffers.
  communicator->launching = transfer;
  const Launch launch{communicator, communicator->comm, communicator->stream, transfer->direction,
                      transfer->buffers};
  mutex_.unlock();
  const absl::StatusOr<NcclProgress> progress = run(launch);
  mutex_.lock();
  if (communicator->closed) return;
  if (!progress.ok()) {
    fail_locked(communicator, "a transfer", progress.status());
  } else if (*progress == NcclProgress::kDone) {
    record_locked(communicator);
  }
}

// NCCL has launched the transfer: only now an event of the stream is behind it.
void Core::record_locked(const CommunicatorPtr& communicator) {
  const TransferPtr transfer = communicator->launching;
  mutex_.unlock();
  absl::StatusOr<DeviceApi::Event> event = options_.device->create_event(communicator->device);
  absl::Status recorded = event.status();
  if (event.ok()) {
    recorded = options_.device->record(*event, communicator->device, communicator->stream);
  }
  mutex_.lock();
  if (event.ok() && transfer->phase != Transfer::Phase::kEnded) transfer->finished = *event;
  if (communicator->closed) return;
  if (!recorded.ok()) {
    fail_locked(communicator, "an event", recorded);
    return;
  }
  communicator->launching = nullptr;
  communicator->running.push_back(transfer);
  wake_watchdog_.notify_all();
}

void Core::poll_locked(const CommunicatorPtr& communicator) {
  mutex_.unlock();
  const absl::StatusOr<NcclProgress> progress = options_.nccl->progress(communicator->comm);
  mutex_.lock();
  if (communicator->closed) return;
  if (!progress.ok()) {
    fail_locked(communicator, "an error", progress.status());
    return;
  }
  if (*progress == NcclProgress::kInProgress) return;
  if (communicator->state == Communicator::State::kConnecting) {
    communicator->state = Communicator::State::kReady;
    communicator->link->peer->failed_openings = 0;
    release_place_locked(*communicator);
  } else if (communicator->launching != nullptr) {
    record_locked(communicator);
  }
}

}  // namespace sinew::internal::nccl
