#pragma once

/// Versions of a state dict, from one writer to many readers.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sinew/optim/internal/layer.h"
#include "sinew/optim/state_dict.h"
#include "sinew/rpc/worker.h"

namespace sinew {
namespace internal {
class PublicationCore;
class SubscriptionCore;
}  // namespace internal

namespace optim {

struct PublicationOptions {
  /// Tensors of float and double are published, and arrive, as bfloat16.
  bool as_bf16 = false;
  /// Versions that the writer keeps, the newest among them: readers that have one of the others get
  /// what has changed since, if that is less than half. 1: they get all. At least 1.
  std::size_t kept = 2;
  /// How many readers take bytes from the writer at once, or from one reader; the others take them
  /// from readers that have them. Those that map the memory do not count. At least 1.
  std::size_t fan_out = 4;
  /// Versions have greater numbers: that of a checkpoint.
  std::uint64_t above = 0;
};

/// What a writer says of its publication.
struct PublicationStatus {
  /// The newest one that readers can get; 0: none yet.
  std::uint64_t version = 0;
  std::chrono::nanoseconds age{0};
  struct Reader {
    std::string worker;
    /// What it has said that it has; 0: none.
    std::uint64_t version = 0;
  };
  std::vector<Reader> readers;
};

/// The writer's end. Readers find it by the names of the worker and the publication:
///
///     sinew::optim::Publication publication(worker, "weights");
///     publication.publish(sinew::optim::state_of(*policy));
///     ...
///     sinew::optim::Subscription subscription(worker, "learner/weights");
///     auto newest = subscription.wait_for(1, 30s);
///     replica->load(newest->tensors);
///
/// Copies are the same publication; with the last one it ends, and readers look for another one of
/// its name. End it before its worker. Thread-safe.
class Publication {
 public:
  /// None; using it throws RpcError kFailedPrecondition.
  Publication() = default;
  /// Throws RpcError kInvalidArgument for options that make no sense, and as Worker::publish().
  Publication(const Worker& worker, std::string_view name, const PublicationOptions& options = {});
  bool valid() const { return core_ != nullptr; }

  /// Copies the tensors, wherever they are, and returns: they may be changed again, but not before.
  /// The rest, such as a checksum, is done by the worker's threads. A version that arrives while
  /// that is done for others takes the place of one that waits.
  ///
  /// Returns its number. It is greater than that of any version before, by this writer or by an
  /// earlier one that a reader has told of. (Should that reader come later, the version gets a
  /// greater one.)
  ///
  /// Throws RpcError kInvalidArgument, which names the tensor, for an empty dict, an undefined
  /// tensor and elements that do not travel; kResourceExhausted where there is no memory.
  std::uint64_t publish(const StateDict& tensors) const;
  PublicationStatus status() const;

  /// Goes on at the worker that has taken the former one's place (WorkerOptions::on_rejoined).
  void move_to(const Worker& worker) const;

 private:
  struct Handle;
  std::shared_ptr<Handle> core_;
};

/// One version, at a reader. Never changes.
struct Weights {
  std::uint64_t version = 0;
  /// By the writer's clock.
  std::chrono::system_clock::time_point published;
  /// By name. Processes of a host share the memory. A process that writes to it all the same
  /// changes only what it sees itself.
  StateDict tensors;
  /// How long ago it was published, on its way included but for the last message.
  std::chrono::nanoseconds age() const {
    return age_at_arrival + (std::chrono::steady_clock::now() - arrived);
  }

  std::chrono::nanoseconds age_at_arrival{0};
  std::chrono::steady_clock::time_point arrived;
};

struct SubscriptionOptions {
  /// Runs for each version that this reader switches to, one at a time and in order, on the
  /// worker's executor. It may block; then it gets the newest one next.
  std::function<void(const std::shared_ptr<const Weights>& weights)> on_version;
  /// Maps the memory of processes of this host. Otherwise it takes a copy of its own.
  bool shares_memory = true;
  /// A larger version is refused.
  std::uint64_t max_bytes = std::uint64_t{64} << 30;
};

/// What a reader says of its end.
struct SubscriptionStatus {
  /// What there is; 0: none.
  std::uint64_t version = 0;
  std::chrono::nanoseconds age{0};
  /// How versions have arrived: by mapping memory, as changes, as a whole.
  std::uint64_t mapped = 0;
  std::uint64_t changed = 0;
  std::uint64_t whole = 0;
  /// The worker that the last one came from: the writer's, or a reader's.
  std::string source;
  /// Of tensors, without those that were mapped.
  std::uint64_t received_bytes = 0;
  /// Versions whose checksum was wrong when they came; they were asked for again.
  std::uint64_t rejected = 0;
  /// What it does, for people.
  std::string doing;
};

/// A reader's end: has the newest version as soon as it has all of it, and never a mixture.
/// Versions that it is too slow for are left out; their numbers never go back. Looks for the writer
/// again when that is lost, and keeps what it has meanwhile. Copies are the same; with the last one
/// it ends. End it before its worker. Thread-safe.
class Subscription {
 public:
  /// None; using it throws RpcError kFailedPrecondition.
  Subscription() = default;
  /// `address` is "worker/publication". Does not wait.
  Subscription(const Worker& worker, std::string_view address, SubscriptionOptions options = {});
  bool valid() const { return core_ != nullptr; }

  /// Null: none has arrived yet.
  std::shared_ptr<const Weights> latest() const;
  /// Waits for that version or a later one. `timeout` as in Worker::wait_for(). Blocks. Throws
  /// RpcError kDeadlineExceeded, which says what there is instead; kInvalidArgument where something
  /// else has the name.
  std::shared_ptr<const Weights> wait_for(
      std::uint64_t version, std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const;
  SubscriptionStatus status() const;

  /// Goes on at the worker that has taken the former one's place, with what there is.
  void move_to(const Worker& worker) const;

 private:
  struct Handle;
  std::shared_ptr<Handle> core_;
};

/// The parameters and buffers of a module, by their names: what publish() takes.
template <class Module>
StateDict state_of(const Module& module) {
  return internal::named_tensors(module);
}

}  // namespace optim
}  // namespace sinew
