#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"

namespace sinew {

/// One process start of one worker. Drawn at random (never zero), so that a worker which comes back
/// under its old name is told apart from the one that left.
struct Incarnation {
  std::uint64_t value = 0;

  friend bool operator==(Incarnation a, Incarnation b) { return a.value == b.value; }
  friend bool operator!=(Incarnation a, Incarnation b) { return a.value != b.value; }
  friend bool operator<(Incarnation a, Incarnation b) { return a.value < b.value; }
  template <class H>
  friend H AbslHashValue(H h, Incarnation i) {
    return H::combine(std::move(h), i.value);
  }
};

/// 64 bits from the operating system's random source, for ids that must not be guessable.
/// Thread-safe.
std::uint64_t random_secret();

/// Who a worker is: its name and rank, both unique within the job while the worker lives, and its
/// incarnation. Two infos are equal when all three agree. A value type; can be an argument or
/// result of a call, and a key of a hash map.
struct WorkerInfo {
  std::string name;
  std::int32_t rank = -1;
  Incarnation incarnation;

  friend bool operator==(const WorkerInfo& a, const WorkerInfo& b) {
    return a.rank == b.rank && a.incarnation == b.incarnation && a.name == b.name;
  }
  friend bool operator!=(const WorkerInfo& a, const WorkerInfo& b) { return !(a == b); }
  template <class H>
  friend H AbslHashValue(H h, const WorkerInfo& w) {
    return H::combine(std::move(h), w.name, w.rank, w.incarnation);
  }
};

/// `WorkerInfo(name=trainer, rank=2)`
std::ostream& operator<<(std::ostream& out, const WorkerInfo& worker);

namespace internal {

/// Names a thing made by one incarnation of one worker. `secret` cannot be guessed, so that knowing
/// the counter of a worker is not enough to forge an id.
template <class Tag>
struct GlobalId {
  Incarnation creator;
  std::uint64_t serial = 0;
  std::uint64_t secret = 0;

  bool empty() const { return creator.value == 0; }
  friend bool operator==(const GlobalId& a, const GlobalId& b) {
    return a.serial == b.serial && a.secret == b.secret && a.creator == b.creator;
  }
  friend bool operator!=(const GlobalId& a, const GlobalId& b) { return !(a == b); }
  friend bool operator<(const GlobalId& a, const GlobalId& b) {
    return std::tie(a.creator.value, a.serial, a.secret) <
           std::tie(b.creator.value, b.serial, b.secret);
  }
  template <class H>
  friend H AbslHashValue(H h, const GlobalId& id) {
    return H::combine(std::move(h), id.creator, id.serial, id.secret);
  }
  /// For logs and error texts: shows no secret, so a log cannot be used to forge an id.
  friend std::string to_string(const GlobalId& id) {
    return absl::StrFormat("%016x.%d", id.creator.value, id.serial);
  }
};

}  // namespace internal

/// Names a value that is held for remote use.
using RRefId = internal::GlobalId<struct RRefTag>;
/// Names one holder's copy of a reference.
using ForkId = internal::GlobalId<struct ForkTag>;

}  // namespace sinew

template <>
struct std::hash<sinew::WorkerInfo> {
  std::size_t operator()(const sinew::WorkerInfo& w) const noexcept {
    return std::hash<std::uint64_t>()(w.incarnation.value) ^ static_cast<std::size_t>(w.rank);
  }
};
