#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "sinew/rpc/method.h"
#include "sinew/testing/message.h"

namespace sinew::testing {

/// Which messages are meant, of a fault or in a stepped network: calls on their way to whom they
/// are for, or the answers on their way back. Begin with calls() or replies(); each function
/// narrows it down, and returns it. Attempts of calls that are repeated are messages of their own.
///
///     calls<&app::mean>().at("learner").first(2);      // two calls of app::mean
///     replies().by("actor0").kind(CallKind::kToHere);  // what actor0 fetches
class Messages {
 public:
  explicit Messages(Leg leg) : leg_(leg) {}
  /// This one alone, of those that SteppedNetwork::under_way() lists.
  Messages(const Message& message)  // NOLINT(google-explicit-constructor): a message is one of them
      : leg_(message.leg), number_(message.number) {}

  /// Of the method of that name on the wire (RpcError::method()): "app::mean"; a class's
  /// constructor has the name of the class.
  Messages& method(std::string name) {
    method_ = std::move(name);
    return *this;
  }
  Messages& kind(CallKind kind) {
    kind_ = kind;
    return *this;
  }
  /// That the worker of this name serves.
  Messages& at(std::string callee) {
    callee_ = std::move(callee);
    return *this;
  }
  /// That the worker of this name has made. Empty: those of clients that are no workers.
  Messages& by(std::string caller) {
    caller_ = std::move(caller);
    return *this;
  }
  /// Not the first so many of all these, ...
  Messages& after(int count);
  /// ... and of the rest only the first so many. Both throw RpcError kInvalidArgument for a
  /// negative count.
  Messages& first(int count);
  /// Each with this probability, from 0 to 1 (kInvalidArgument otherwise); the same ones again with
  /// the same seed, by their count.
  Messages& at_random(double probability, std::uint64_t seed);

  /// For the kit.
  bool includes(const Message& message) const;
  std::uint64_t skipped() const { return skip_; }
  std::uint64_t limit() const { return limit_; }
  double probability() const { return probability_; }
  std::uint64_t seed() const { return seed_; }
  friend std::ostream& operator<<(std::ostream& out, const Messages& messages);

 private:
  Leg leg_;
  std::optional<std::string> method_;
  std::optional<std::string> callee_;
  std::optional<std::string> caller_;
  std::optional<CallKind> kind_;
  std::optional<std::uint64_t> number_;
  std::uint64_t skip_ = 0;
  std::uint64_t limit_ = std::numeric_limits<std::uint64_t>::max();
  double probability_ = 1;
  std::uint64_t seed_ = 0;
};

/// All calls; those of a function or member function; those that make an object of a class.
inline Messages calls() { return Messages(Leg::kCall); }
template <auto Method>
Messages calls() {
  return calls().method(std::string(MethodName<Method>::value));
}
template <class Class>
Messages calls() {
  using Constructor = typename internal::ServiceOf<Class>::constructor;
  return calls().method(std::string(ConstructorName<Constructor>::value));
}

/// The answers to them, errors among them.
inline Messages replies() { return Messages(Leg::kReply); }
template <auto Method>
Messages replies() {
  return replies().method(std::string(MethodName<Method>::value));
}
template <class Class>
Messages replies() {
  using Constructor = typename internal::ServiceOf<Class>::constructor;
  return replies().method(std::string(ConstructorName<Constructor>::value));
}

}  // namespace sinew::testing
