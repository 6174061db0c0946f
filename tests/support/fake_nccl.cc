#include "sinew/tests/support/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/tests/support/fake_nccl_state.h"

namespace sinew::testing {

using internal::MutexLock;
using internal::NcclProgress;

// ---- NCCL.

class FakeGpus::Nccl final : public NcclApi {
 public:
  Nccl(std::shared_ptr<State> state, std::string worker, int version)
      : state_(std::move(state)), worker_(std::move(worker)), version_(version) {}

  int version() const override { return version_; }

  absl::StatusOr<std::string> get_unique_id() override {
    MutexLock lock(state_->mutex);
    if (enter(Call::kGetUniqueId) != State::Verdict::kFine) return error();
    std::string id = absl::StrCat("id ", ++state_->next_id, " ");
    id.resize(kIdBytes, '.');
    return id;
  }

  Initialised init_rank(const std::string& id, int rank, int max_ctas) override {
    MutexLock lock(state_->mutex);
    state_->max_ctas = max_ctas;
    state_->check_capture("init_rank");
    const auto verdict = enter(Call::kInitRank);
    if (verdict == State::Verdict::kFail) return {nullptr, error()};
    if (is_old() && state_->is_busy(nullptr)) return {nullptr, error()};
    auto made = std::make_unique<Communicator>();
    made->worker = worker_;
    made->id = id;
    made->rank = rank;
    made->thread = std::this_thread::get_id();
    made->never_ready = verdict == State::Verdict::kNeverEnds;
    const auto device = state_->bound.find({worker_, made->thread});
    if (device == state_->bound.end()) {
      state_->violate("init_rank on no device");
    } else {
      made->device = device->second;
    }
    for (const auto& one : state_->communicators) {
      if (one->id == id && one->rank == rank) state_->violate("the same rank twice");
      if (one->id == id && one->worker == worker_) state_->violate("a communicator with itself");
    }
    state_->communicators.push_back(std::move(made));
    return {state_->communicators.back().get(), absl::OkStatus()};
  }

  absl::StatusOr<NcclProgress> progress(Comm comm) override {
    MutexLock lock(state_->mutex);
    Communicator* communicator = state_->own(comm, "progress");
    if (communicator == nullptr || communicator->failed) return error();
    if (!communicator->ready) {
      const Communicator* peer = state_->other(*communicator);
      // Some polls, so that what is done before it is ready shows.
      communicator->ready = ++communicator->polls > 2 && peer != nullptr && !peer->aborted &&
                            !communicator->never_ready && !peer->never_ready &&
                            state_->is_idle(*communicator) && !communicator->dead && !peer->dead;
      return communicator->ready ? NcclProgress::kDone : NcclProgress::kInProgress;
    }
    if (communicator->pending != nullptr) {
      if (communicator->never_launches) return NcclProgress::kInProgress;
      state_->launch(*communicator);
      state_->advance();
    }
    return NcclProgress::kDone;
  }

  absl::Status group_start() override {
    MutexLock lock(state_->mutex);
    if (state_->groups[std::this_thread::get_id()].depth++ != 0) {
      state_->violate("a group in a group");
    }
    return absl::OkStatus();
  }

  absl::Status send(Comm comm, const void* data, std::size_t size_bytes, void* stream) override {
    return add(comm, Call::kSend, Part{true, const_cast<void*>(data), size_bytes, stream});
  }
  absl::Status recv(Comm comm, void* data, std::size_t size_bytes, void* stream) override {
    return add(comm, Call::kRecv, Part{false, data, size_bytes, stream});
  }

  absl::StatusOr<NcclProgress> group_end() override {
    MutexLock lock(state_->mutex);
    const auto verdict = enter(Call::kGroupEnd);
    const auto found = state_->groups.find(std::this_thread::get_id());
    if (found == state_->groups.end() || found->second.depth != 1) {
      state_->violate("group_end without group_start");
      return error();
    }
    const Group group = std::move(found->second);
    state_->groups.erase(found);
    if (verdict == State::Verdict::kFail) return error();
    if (group.communicator == nullptr) return NcclProgress::kDone;
    Communicator& communicator = *group.communicator;
    // The call may have hung meanwhile.
    if (communicator.aborted) return error();
    if (is_old() && state_->is_busy(&communicator)) return error();
    communicator.pending = std::make_shared<Kernel>();
    communicator.pending->communicator = &communicator;
    communicator.pending->parts = group.parts;
    communicator.pending->stuck = group.stuck;
    communicator.pending_stream = group.parts.front().stream;
    communicator.never_launches = verdict == State::Verdict::kNeverEnds;
    if (communicator.never_launches || ++state_->group_ends % 3 != 0) {
      return NcclProgress::kInProgress;
    }
    // Nothing is said about how soon it is done.
    state_->launch(communicator);
    state_->advance();
    return NcclProgress::kDone;
  }

  absl::Status abort(Comm comm) override {
    MutexLock lock(state_->mutex);
    state_->check_capture("abort");
    const auto verdict = enter(Call::kAbort);
    if (verdict == State::Verdict::kFail) state_->violate("abort cannot fail");
    Communicator* communicator = state_->find(comm, "abort");
    if (communicator == nullptr) return error();
    communicator->aborted = true;
    for (const auto& kernel : communicator->launched) {
      if (verdict == State::Verdict::kLate && !kernel->over) write_once_more(*kernel);
      state_->finish(*kernel);
    }
    state_->advance();
    const int device = communicator->device;
    while (state_->has_gate(worker_, device) && !state_->release) {
      state_->released.wait(state_->mutex);
    }
    return absl::OkStatus();
  }

 private:
  State::Verdict enter(Call call) { return state_->enter(worker_, call); }
  bool is_old() const { return version_ < 22700; }
  static void write_once_more(const Kernel& kernel) {
    for (const Part& part : kernel.parts) {
      if (!part.is_send) std::memset(part.data, 0xee, part.size_bytes);
    }
  }
  static absl::Status error() { return absl::InternalError("unhandled system error"); }

  absl::Status add(Comm comm, Call call, const Part& part) {
    MutexLock lock(state_->mutex);
    const auto verdict = enter(call);
    // The communicator may have been aborted meanwhile.
    if (verdict == State::Verdict::kLate) return error();
    Communicator* communicator = state_->own(comm, "send or recv");
    if (communicator == nullptr) return error();
    if (!communicator->ready || communicator->pending != nullptr) {
      state_->violate("send or recv while another call is in progress");
    }
    const auto stream = state_->streams.find(part.stream);
    if (stream == state_->streams.end() || stream->second->device != communicator->device ||
        stream->second->worker != worker_) {
      state_->violate("send or recv on a stream of another device");
      return error();
    }
    Group& group = state_->groups[std::this_thread::get_id()];
    if (group.depth == 0) state_->violate("send or recv outside of a group");
    if (group.communicator != nullptr && group.communicator != communicator) {
      state_->violate("two communicators in one group");
    }
    if (verdict == State::Verdict::kFail) return error();
    group.communicator = communicator;
    group.stuck |= verdict == State::Verdict::kNeverEnds;
    group.parts.push_back(part);
    return absl::OkStatus();
  }

  const std::shared_ptr<State> state_;
  const std::string worker_;
  const int version_;
};

// ---- CUDA.

class FakeGpus::Device final : public internal::DeviceApi {
 public:
  Device(std::shared_ptr<State> state, std::string worker)
      : state_(std::move(state)), worker_(std::move(worker)) {}

  int device_count() const override { return state_->devices_per_worker; }

  absl::Status bind_thread(int device) override {
    MutexLock lock(state_->mutex);
    state_->bound[{worker_, std::this_thread::get_id()}] = device;
    state_->relaxed.insert(std::this_thread::get_id());
    return absl::OkStatus();
  }

  absl::Status leave_captures_alone() override {
    MutexLock lock(state_->mutex);
    state_->relaxed.insert(std::this_thread::get_id());
    return absl::OkStatus();
  }

  absl::StatusOr<Stream> create_stream(int device) override {
    MutexLock lock(state_->mutex);
    state_->check_capture("create_stream");
    if (state_->enter(worker_, Call::kCreateStream) != State::Verdict::kFine) {
      return absl::InternalError("out of memory");
    }
    auto stream = std::make_unique<testing::Stream>();
    stream->worker = worker_;
    stream->device = device;
    void* handle = stream.get();
    state_->streams[handle] = std::move(stream);
    return handle;
  }

  void destroy_stream(int device, Stream handle) override {
    MutexLock lock(state_->mutex);
    state_->check_capture("destroy_stream");
    testing::Stream* stream = find(handle, device, "destroy_stream");
    if (stream == nullptr) return;
    if (!stream->ops.empty()) state_->violate("a stream is destroyed while it works");
    state_->streams.erase(handle);
  }

  absl::StatusOr<Event> create_event(int) override {
    MutexLock lock(state_->mutex);
    auto event = std::make_shared<testing::Event>();
    void* handle = event.get();
    state_->events[handle] = std::move(event);
    return handle;
  }

  void destroy_event(Event handle) override {
    MutexLock lock(state_->mutex);
    if (state_->events.erase(handle) == 0) state_->violate("destroy_event of no event");
  }

  absl::Status record(Event handle, int device, Stream stream_handle) override {
    MutexLock lock(state_->mutex);
    testing::Stream* stream = find(stream_handle, device, "record");
    const auto event = state_->events.find(handle);
    if (stream == nullptr || event == state_->events.end()) {
      state_->violate("record of no event");
      return absl::InternalError("invalid resource handle");
    }
    Op op;
    op.kind = Op::Kind::kRecord;
    op.event = event->second;
    op.generation = ++op.event->recorded;
    stream->ops.push_back(std::move(op));
    state_->advance();
    return absl::OkStatus();
  }

  absl::StatusOr<bool> is_done(Event handle) override {
    MutexLock lock(state_->mutex);
    const auto event = state_->events.find(handle);
    if (event == state_->events.end()) {
      state_->violate("is_done of no event");
      return absl::InternalError("invalid resource handle");
    }
    return event->second->done >= event->second->recorded;
  }

 private:
  testing::Stream* find(Stream handle, int device, const char* call) {
    const auto stream = state_->streams.find(handle);
    if (stream == state_->streams.end() || stream->second->worker != worker_ ||
        stream->second->device != device) {
      state_->violate(absl::StrCat(call, " of no stream of the device"));
      return nullptr;
    }
    return stream->second.get();
  }

  const std::shared_ptr<State> state_;
  const std::string worker_;
};

// ---- What tests do.

FakeGpus::FakeGpus(int devices_per_worker, int kernels_at_once)
    : state_(std::make_shared<State>(devices_per_worker, kernels_at_once)) {}

FakeGpus::~FakeGpus() {
  release();
  MutexLock lock(state_->mutex);
  while (state_->hanging != 0) state_->released.wait(state_->mutex);
}

std::shared_ptr<NcclApi> FakeGpus::nccl(const std::string& name, int version) {
  return std::make_shared<Nccl>(state_, name, version);
}

std::shared_ptr<internal::DeviceApi> FakeGpus::device(const std::string& name) {
  return std::make_shared<Device>(state_, name);
}

void FakeGpus::inject(const std::string& name, Call call, Fault fault, int nth) {
  MutexLock lock(state_->mutex);
  state_->faults[{name, call}] = {nth, fault};
}

void FakeGpus::release() {
  MutexLock lock(state_->mutex);
  state_->release = true;
  state_->released.notify_all();
}

void FakeGpus::hold_kernels() {
  MutexLock lock(state_->mutex);
  state_->kernels_held = true;
}

void FakeGpus::let_kernels_go() {
  MutexLock lock(state_->mutex);
  state_->kernels_held = false;
  state_->advance();
}

void FakeGpus::begin_capture() {
  MutexLock lock(state_->mutex);
  state_->captures = true;
}

void FakeGpus::kill(const std::string& name) {
  MutexLock lock(state_->mutex);
  for (const auto& communicator : state_->communicators) {
    if (communicator->worker == name) communicator->dead = true;
  }
}

void FakeGpus::fail_communicators(const std::string& name) {
  MutexLock lock(state_->mutex);
  for (const auto& communicator : state_->communicators) {
    if (communicator->worker == name) communicator->failed = true;
  }
}

void FakeGpus::hold(internal::DeviceApi::Stream stream) {
  MutexLock lock(state_->mutex);
  state_->streams.at(stream)->ops.push_back(Op{});
}

void FakeGpus::let_go(internal::DeviceApi::Stream stream) {
  MutexLock lock(state_->mutex);
  for (Op& op : state_->streams.at(stream)->ops) op.open |= op.kind == Op::Kind::kGate;
  state_->advance();
  state_->released.notify_all();
}

int FakeGpus::watched_kernels(const std::string& name) const {
  MutexLock lock(state_->mutex);
  int watched = 0;
  for (const auto& [handle, stream] : state_->streams) {
    if (stream->worker != name) continue;
    int kernels = 0;
    for (const Op& op : stream->ops) {
      if (op.kind == Op::Kind::kKernel) ++kernels;
      if (op.kind == Op::Kind::kRecord) watched += std::exchange(kernels, 0);
    }
  }
  return watched;
}

std::vector<std::string> FakeGpus::violations() const {
  MutexLock lock(state_->mutex);
  return state_->violations;
}

FakeGpus::Live FakeGpus::live() const {
  MutexLock lock(state_->mutex);
  Live live;
  for (const auto& communicator : state_->communicators) {
    if (!communicator->aborted) ++live.communicators;
  }
  live.streams = static_cast<int>(state_->streams.size());
  live.events = static_cast<int>(state_->events.size());
  return live;
}

int FakeGpus::most_kernels() const {
  MutexLock lock(state_->mutex);
  return state_->most_kernels;
}

int FakeGpus::calls(Call call) const {
  MutexLock lock(state_->mutex);
  const auto found = state_->calls.find(call);
  return found == state_->calls.end() ? 0 : found->second;
}

int FakeGpus::max_ctas() const {
  MutexLock lock(state_->mutex);
  return state_->max_ctas;
}

int FakeGpus::hanging() const {
  MutexLock lock(state_->mutex);
  return state_->hanging;
}

}  // namespace sinew::testing
