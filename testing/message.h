#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace sinew::testing {

/// Which way a message goes.
enum class Leg {
  /// A call, on its way to the worker that serves it.
  kCall,
  /// The answer to one, an error among them, on its way back.
  kReply,
};

/// How a call was made.
enum class CallKind {
  /// By call() or async(), or by a client that is no worker.
  kCall,
  /// By remote(): the result stays.
  kRemote,
  /// By RRef::to_here().
  kToHere,
  /// By autograd::backward(): what the workers of a pass ask of each other, gradients among it.
  kBackward,
  /// By other parts of Sinew: steps of optimizers, finds of names, stores.
  kOther,
};
std::ostream& operator<<(std::ostream& out, CallKind kind);

/// A call or the answer to one, between two workers.
struct Message {
  Leg leg = Leg::kCall;
  CallKind kind = CallKind::kCall;
  /// As RpcError::method() names it; see Messages::method().
  std::string method;
  /// Empty: a client that is no worker.
  std::string caller;
  std::string callee;
  /// With its tensors.
  std::uint64_t size_bytes = 0;
  /// Of those of a stepped network each has another one; 0 elsewhere.
  std::uint64_t number = 0;

  const std::string& from() const { return leg == Leg::kCall ? caller : callee; }
  const std::string& to() const { return leg == Leg::kCall ? callee : caller; }
};
/// "call of app::mean from 'actor' to 'learner'": the same for the same message of another run.
std::ostream& operator<<(std::ostream& out, const Message& message);

}  // namespace sinew::testing
