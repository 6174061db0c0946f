#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/wire/codec.h"

namespace sinew::autograd {

/// Names a context in the whole job. A value type. It can be an argument of a call, and a worker
/// that receives it can take part.
struct ContextId {
  /// Of the worker that made it.
  Incarnation creator;
  std::uint64_t serial = 0;
  /// Cannot be guessed, so no worker can take part in a context, or end it, by counting numbers up.
  std::uint64_t secret = 0;

  friend bool operator==(const ContextId& a, const ContextId& b) {
    return a.creator == b.creator && a.serial == b.serial && a.secret == b.secret;
  }
  friend bool operator!=(const ContextId& a, const ContextId& b) { return !(a == b); }
  template <class H>
  friend H AbslHashValue(H h, const ContextId& id) {
    return H::combine(std::move(h), id.creator, id.serial, id.secret);
  }
};

/// `0f3a8c0012345678.3`: without its secret.
std::string to_string(const ContextId& id);
std::ostream& operator<<(std::ostream& out, const ContextId& id);

}  // namespace sinew::autograd

namespace sinew {

template <>
struct Codec<autograd::ContextId> {
  static void encode(ValueWriter& writer, const autograd::ContextId& id);
  static autograd::ContextId decode(const ValueReader& reader);
  static std::string signature() { return "autograd.context"; }
};

}  // namespace sinew
