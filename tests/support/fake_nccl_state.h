#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/tests/support/fake_nccl.h"

/// What fake_nccl.cc's GPUs are: streams, events, kernels and communicators, and what makes them
/// move.
namespace sinew::testing {

using internal::CondVar;
using internal::Mutex;
using internal::NcclApi;

inline namespace fake_gpus {

struct Event {
  // Counts records; those up to `done` have been reached.
  int recorded = 0;
  int done = 0;
};

struct Communicator;

struct Part {
  bool is_send = false;
  void* data = nullptr;
  std::size_t size_bytes = 0;
  void* stream = nullptr;
};

struct Kernel {
  Communicator* communicator = nullptr;
  int number = 0;
  std::vector<Part> parts;
  bool runs = false;
  bool stuck = false;
  bool over = false;
};

struct Op {
  enum class Kind { kRecord, kKernel, kGate };
  Kind kind = Kind::kGate;
  std::shared_ptr<Event> event;
  int generation = 0;
  std::shared_ptr<Kernel> kernel;
  bool open = false;
};

struct Stream {
  std::string worker;
  int device = 0;
  std::deque<Op> ops;
};

struct Communicator {
  std::string worker;
  std::string id;
  int rank = 0;
  int device = 0;
  std::thread::id thread;
  bool never_ready = false;
  bool ready = false;
  bool never_launches = false;
  bool dead = false;
  bool failed = false;
  bool aborted = false;
  int polls = 0;
  int kernels = 0;
  // Ended, but not launched yet.
  std::shared_ptr<Kernel> pending;
  void* pending_stream = nullptr;
  std::vector<std::shared_ptr<Kernel>> launched;
};

struct Group {
  int depth = 0;
  bool stuck = false;
  Communicator* communicator = nullptr;
  std::vector<Part> parts;
};

}  // namespace fake_gpus

struct FakeGpus::State {
  State(int devices, int width) : devices_per_worker(devices), kernels_at_once(width) {}

  const int devices_per_worker;
  const int kernels_at_once;
  mutable Mutex mutex;
  CondVar released;
  bool release = false;
  int hanging = 0;
  int most_kernels = 0;
  std::vector<std::string> violations;
  std::map<Call, int> calls;
  // (worker, call) -> (calls to go, fault)
  std::map<std::pair<std::string, Call>, std::pair<int, Fault>> faults;
  std::map<void*, std::shared_ptr<Event>> events;
  std::map<void*, std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::map<std::thread::id, Group> groups;
  std::map<std::pair<std::string, std::thread::id>, int> bound;
  bool kernels_held = false;
  bool captures = false;
  std::set<std::thread::id> relaxed;
  int group_ends = 0;
  int max_ctas = 0;
  // (worker, device) -> kernels
  std::map<std::pair<std::string, int>, int> running;
  std::map<std::pair<std::string, int>, int> queued;
  int next_id = 0;

  void violate(std::string what) { violations.push_back(std::move(what)); }

  // For calls that a capture forbids to those who have not asked for it.
  void check_capture(const char* call) {
    if (captures && relaxed.count(std::this_thread::get_id()) == 0) {
      violate(absl::StrCat(call, " invalidates a capture"));
    }
  }

  // Whether a thread is at something that has not ended, for another communicator.
  bool is_busy(const Communicator* but) const {
    for (const auto& one : communicators) {
      if (one.get() == but || one->aborted || one->thread != std::this_thread::get_id()) continue;
      if (!one->ready || one->pending != nullptr) return true;
    }
    return false;
  }

  bool is_idle(const Communicator& one) const {
    const auto found = running.find({one.worker, one.device});
    return found == running.end() || found->second == 0;
  }

  // Whether the device has work that only a test ends.
  bool has_gate(const std::string& worker, int device) const {
    for (const auto& [handle, stream] : streams) {
      if (stream->worker != worker || stream->device != device) continue;
      for (const Op& op : stream->ops) {
        if (op.kind == Op::Kind::kGate && !op.open) return true;
      }
    }
    return false;
  }

  // What is to go wrong with this call, if anything. Hangs if that is it.
  enum class Verdict { kFine, kFail, kNeverEnds, kLate };
  Verdict enter(const std::string& worker, Call call) {
    ++calls[call];
    const auto fault = faults.find({worker, call});
    if (fault == faults.end() || --fault->second.first > 0) return Verdict::kFine;
    const Fault kind = fault->second.second;
    faults.erase(fault);
    if (kind == Fault::kFail) return Verdict::kFail;
    if (kind == Fault::kNeverEnds) return Verdict::kNeverEnds;
    ++hanging;
    while (!release) released.wait(mutex);
    --hanging;
    released.notify_all();
    return Verdict::kLate;
  }

  Communicator* find(NcclApi::Comm comm, const char* call) {
    for (const auto& communicator : communicators) {
      if (communicator.get() != comm) continue;
      if (communicator->aborted) violate(absl::StrCat(call, " after abort"));
      return communicator.get();
    }
    violate(absl::StrCat(call, " of no communicator"));
    return nullptr;
  }

  // For calls that must come from the communicator's own thread, bound to its device.
  Communicator* own(NcclApi::Comm comm, const char* call) {
    Communicator* communicator = find(comm, call);
    if (communicator == nullptr) return nullptr;
    const auto self = std::this_thread::get_id();
    if (communicator->thread != self) violate(absl::StrCat(call, " from another thread"));
    const auto device = bound.find({communicator->worker, self});
    if (device == bound.end() || device->second != communicator->device) {
      violate(absl::StrCat(call, " on another device"));
    }
    return communicator;
  }

  Communicator* other(const Communicator& one) {
    for (const auto& candidate : communicators) {
      if (candidate->id == one.id && candidate->rank != one.rank) return candidate.get();
    }
    return nullptr;
  }

  void launch(Communicator& communicator) {
    const std::shared_ptr<Kernel> kernel = std::move(communicator.pending);
    communicator.pending = nullptr;
    kernel->number = ++communicator.kernels;
    communicator.launched.push_back(kernel);
    Op op;
    op.kind = Op::Kind::kKernel;
    op.kernel = kernel;
    streams.at(communicator.pending_stream)->ops.push_back(op);
    int& count = queued[{communicator.worker, communicator.device}];
    most_kernels = std::max(most_kernels, ++count);
  }

  void finish(Kernel& kernel) {
    if (kernel.over) return;
    kernel.over = true;
    const std::pair<std::string, int> device(kernel.communicator->worker,
                                             kernel.communicator->device);
    if (kernel.runs) --running[device];
    --queued[device];
  }

  // Moves the bytes if the other end runs too. What does not match never ends, as with NCCL.
  void run(Kernel& kernel) {
    if (kernels_held) return;
    Communicator& communicator = *kernel.communicator;
    if (!kernel.runs) {
      int& count = running[{communicator.worker, communicator.device}];
      if (count >= kernels_at_once) return;
      ++count;
      kernel.runs = true;
    }
    const Communicator* peer = other(communicator);
    if (peer == nullptr || peer->aborted || peer->dead || communicator.dead) return;
    for (const auto& match : peer->launched) {
      if (match->number != kernel.number || !match->runs || match->over) continue;
      if (match->stuck || kernel.stuck) return;
      exchange(kernel, *match);
      return;
    }
  }

  void exchange(Kernel& one, Kernel& two) {
    bool fits = one.parts.size() == two.parts.size();
    for (std::size_t i = 0; fits && i < one.parts.size(); ++i) {
      fits = one.parts[i].is_send != two.parts[i].is_send &&
             one.parts[i].size_bytes == two.parts[i].size_bytes;
    }
    if (!fits) {
      violate(absl::StrCat("kernels ", one.number, " of '", one.communicator->worker, "' and '",
                           two.communicator->worker, "' do not match"));
      one.stuck = two.stuck = true;
      return;
    }
    for (std::size_t i = 0; i < one.parts.size(); ++i) {
      const Part& from = one.parts[i].is_send ? one.parts[i] : two.parts[i];
      const Part& to = one.parts[i].is_send ? two.parts[i] : one.parts[i];
      std::memcpy(to.data, from.data, from.size_bytes);
    }
    finish(one);
    finish(two);
  }

  // Whether the op is through.
  bool execute(Op& op) {
    switch (op.kind) {
      case Op::Kind::kRecord:
        op.event->done = std::max(op.event->done, op.generation);
        return true;
      case Op::Kind::kGate:
        return op.open;
      case Op::Kind::kKernel:
        if (!op.kernel->over) run(*op.kernel);
        return op.kernel->over;
    }
    return false;
  }

  // Does all that can be done.
  void advance() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [handle, stream] : streams) {
        while (!stream->ops.empty() && execute(stream->ops.front())) {
          stream->ops.pop_front();
          moved = true;
        }
      }
    }
  }
};

}  // namespace sinew::testing
