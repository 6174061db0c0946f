#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/process_hold.h"

namespace sinew::internal {

/// Where a fetch puts what it copies.
struct PullTarget {
  char* to = nullptr;
  /// Not 0.
  std::size_t size_bytes = 0;
  /// Owns the memory at `to`. A fetch that fails may keep it for a while longer, when something
  /// could still be written to it.
  std::shared_ptr<void> keep;
};

/// Who the ends of a connection are, in the words with which they told each other over it.
struct ConnectionEnds {
  /// Who dialled. It tells the two ends apart, whatever else they say of themselves.
  enum class Role { kOpener, kAcceptor };
  Role self = Role::kOpener;
  std::string local_hello;
  std::string remote_hello;
};

/// One connection's end of a way for a receiver to fetch payloads out of its peer's memory by
/// itself, outside of the streams of the connection. Thread-safe.
///
/// Both ends make one when either wants planes, and each proves to the other that its memory can
/// be fetched from: an end sends challenge(), the other one answers with prove(), and when verify()
/// finds the proof good the first end may fetch what the other one locates.
class PullLink {
 public:
  /// Runs once; not under a lock of the link.
  using OnEnd = absl::AnyInvocable<void(absl::Status) &&>;

  virtual ~PullLink() = default;

  /// What the peer is to prove itself with. Not a secret.
  virtual const std::string& challenge() const = 0;
  /// Answers the peer's challenge. At most once: kFailedPrecondition for the next one.
  virtual absl::StatusOr<std::string> prove(absl::string_view challenge) = 0;
  /// Finds out whether what `proof` describes is the memory of the peer. Otherwise `on_end` gets
  /// the reason why this plane does not reach it: kNotFound for ordinary ones, such as another
  /// host, kInvalidArgument for what is no proof at all. Does not wait; `on_end` runs on any
  /// thread, also on this one before verify() returns. At most once, before any fetch.
  virtual void verify(absl::string_view proof, OnEnd on_end) = 0;

  /// Where `payload`, which is in one piece, is for the peer: at most kMaxLocationBytes of text;
  /// nothing when this plane cannot reach it. Its memory must stay until release() or close().
  virtual std::optional<std::string> locate(const absl::Cord& payload) = 0;
  /// The peer is done with what is located there, or will not fetch it any more.
  virtual void release(absl::string_view location) = 0;
  /// Copies from where the peer has located it. Not OK: what is at the target is undefined.
  /// kInvalidArgument: no such location can be; others may be worth another try. `on_end` runs on
  /// any thread, also on this one before fetch() returns.
  virtual void fetch(absl::string_view location, PullTarget target, OnEnd on_end) = 0;
  /// Whether fetch() copies on the calling thread, so that it takes a while.
  virtual bool fetches_in_place() const = 0;

  /// The process at the other end, by the kernel's word. Null where this plane has none, and until
  /// it has. Also after close().
  virtual std::shared_ptr<const ProcessHold> process() const { return nullptr; }

  /// From here on fetches of the peer fail; when this returns, what was located may be freed and
  /// changed. Idempotent.
  virtual void close() = 0;
};

constexpr std::size_t kMaxLocationBytes = 512;

/// A kind of PullLink. Its number is part of the wire format. Thread-safe.
class PullPlane {
 public:
  virtual ~PullPlane() = default;
  virtual std::uint32_t number() const = 0;
  /// For texts.
  virtual absl::string_view name() const = 0;
  /// A proof is bound to `ends`, so that no process can use the proof of another one as its own.
  virtual std::unique_ptr<PullLink> open(ConnectionEnds ends) = 0;
};

}  // namespace sinew::internal
