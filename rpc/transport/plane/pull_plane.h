#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sinew::internal {

/// One connection's end of a way for a receiver to fetch payloads out of its peer's memory by
/// itself, beside the streams of the connection. Thread-safe.
///
/// Both ends make one as the connection comes up, and each proves to the other that its memory can
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
  /// Whether what `proof` describes is the memory of the peer. Otherwise the reason why this plane
  /// does not reach it: kNotFound for ordinary ones, such as another host, kInvalidArgument for
  /// what is no proof at all. At most once, before any fetch.
  virtual absl::Status verify(absl::string_view proof) = 0;

  /// Where `bytes` are for the peer, at most kMaxLocationBytes of text; nothing when this plane
  /// cannot reach them. They must stay until the peer is done with them, or close().
  virtual std::optional<std::string> locate(absl::string_view bytes) = 0;
  /// Copies `size_bytes` (not 0) from where the peer has located them to `to`. Not OK: what is at
  /// `to` is undefined. kInvalidArgument: no such location can be; others may be worth another try.
  virtual void fetch(absl::string_view location, char* to, std::size_t size_bytes,
                     OnEnd on_end) = 0;
  /// Whether fetch() copies on the calling thread, so that it takes a while.
  virtual bool fetches_in_place() const = 0;

  /// From here on fetches of the peer fail; when this returns, what was located may be freed.
  /// Idempotent.
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
  /// `local_hello` and `remote_hello` are what the ends told each other about themselves over the
  /// connection: a proof is bound to them, so that nobody can pass off somebody else's as his own.
  virtual std::unique_ptr<PullLink> open(std::string local_hello, std::string remote_hello) = 0;
};

}  // namespace sinew::internal
