#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sinew {

/// How the calls of one object go: see MethodRules::one_at_a_time().
enum class OneAtATime {
  /// Any number of them run at once.
  kNo,
  kKeepsTurn,
  kGivesUpTurn,
};

/// Who may call a method, and how much of it at once. A value type; without any rule all may call,
/// without limits.
///
///     methods.add<&app::push>(sinew::allow("trainer.*", "evaluator").limit_calls(64))
///         .add<&app::score>(sinew::allow_identity("spiffe://example.org/clients/*"));
///
/// A pattern is a text in which `*` stands for any characters (also none) and `?` for any one byte.
/// A call that no pattern covers fails with kPermissionDenied, one over a limit with
/// kResourceExhausted; neither ran, and its arguments were not decoded.
class MethodRules {
 public:
  MethodRules() = default;

  /// Also allows workers whose name matches one of the patterns. A client that is no worker never
  /// matches: `allow("*")` is for workers only. With mutual TLS a worker's certificate covers its
  /// name; with other credentials the name is what the job knows the worker by, which any process
  /// that can join may choose among those that are free (SECURITY.md). Throws RpcError
  /// kInvalidArgument for a pattern that is empty, has more than 512 bytes, or matches no possible
  /// name.
  template <class... Patterns>
  [[nodiscard]] MethodRules allow(const Patterns&... patterns) const {
    static_assert(sizeof...(patterns) > 0, "Sinew: allow() needs a pattern of names");
    return with_workers({std::string_view(patterns)...});
  }

  /// Also allows callers, workers and other clients, whose certificate has a name (subject
  /// alternative name or common name) that matches one of the patterns. Only mutual TLS shows
  /// callers' certificates, and a worker's calls to itself need none: they match no such pattern.
  /// Throws as allow() does.
  template <class... Patterns>
  [[nodiscard]] MethodRules allow_identity(const Patterns&... patterns) const {
    static_assert(sizeof...(patterns) > 0, "Sinew: allow_identity() needs a pattern of names");
    return with_identities({std::string_view(patterns)...});
  }

  /// At most so many calls (at least 1) are served at once: from before their arguments are decoded
  /// until they are answered, or would be if a caller still waited. So they count while the future
  /// that a method has returned is pending, and not while they wait for a thread.
  [[nodiscard]] MethodRules limit_calls(std::int64_t calls) const;
  /// The calls that are served at once have at most so many bytes (at least 1) of arguments,
  /// tensors included.
  [[nodiscard]] MethodRules limit_bytes(std::int64_t bytes) const;

  /// Calls of one object wait for each other, in the order of their arrival, and those of one
  /// worker in the order in which it has made them: the class needs no mutex for what only such
  /// methods use. Each object has its own turns, whatever reference it is called through; calls in
  /// C++, by local_value() or a pointer, have none. For member functions.
  ///
  ///     sinew::serve<app::Replay>(sinew::one_at_a_time());
  ///
  /// A call that waits holds no thread, and counts against the limits of its method. A method that
  /// returns a Future, a coroutine among them, keeps its turn until that is done. With kGivesUpTurn
  /// others have it while a coroutine waits in a co_await, and once another method has returned its
  /// Future.
  ///
  /// A call that comes back to the object while a call that led to it has the turn fails at once
  /// with kFailedPrecondition, and did not run. So does one that waits when its time is over, with
  /// kDeadlineExceeded. A call that was refused and is repeated has the place of its last attempt.
  /// Calls of other clients than workers have no objects.
  [[nodiscard]] MethodRules one_at_a_time(OneAtATime how = OneAtATime::kKeepsTurn) const;
  OneAtATime turns() const { return turns_; }

  bool allows_everyone() const { return workers_.empty() && identities_.empty(); }
  /// `worker`: empty for a client that is no worker. `identities`: those that it has proved.
  bool allows(std::string_view worker, const std::vector<std::string>& identities) const;
  bool has_limits() const { return max_calls_ != kNoLimit || max_bytes_ != kNoLimit; }
  std::int64_t max_calls() const { return max_calls_; }
  std::int64_t max_bytes() const { return max_bytes_; }

  friend bool operator==(const MethodRules& a, const MethodRules& b) {
    return a.workers_ == b.workers_ && a.identities_ == b.identities_ &&
           a.max_calls_ == b.max_calls_ && a.max_bytes_ == b.max_bytes_ && a.turns_ == b.turns_;
  }
  friend bool operator!=(const MethodRules& a, const MethodRules& b) { return !(a == b); }

 private:
  static constexpr std::int64_t kNoLimit = INT64_MAX;

  MethodRules with_workers(const std::vector<std::string_view>& patterns) const;
  MethodRules with_identities(const std::vector<std::string_view>& patterns) const;

  std::vector<std::string> workers_;
  std::vector<std::string> identities_;
  std::int64_t max_calls_ = kNoLimit;
  std::int64_t max_bytes_ = kNoLimit;
  OneAtATime turns_ = OneAtATime::kNo;
};

/// Rules by which only workers with such names may call: see MethodRules::allow().
template <class... Patterns>
[[nodiscard]] MethodRules allow(const Patterns&... patterns) {
  return MethodRules().allow(patterns...);
}

/// Rules by which only callers with such certificates may call: see MethodRules::allow_identity().
template <class... Patterns>
[[nodiscard]] MethodRules allow_identity(const Patterns&... patterns) {
  return MethodRules().allow_identity(patterns...);
}

/// Rules by which an object is called by one at a time: see MethodRules::one_at_a_time().
[[nodiscard]] inline MethodRules one_at_a_time(OneAtATime how = OneAtATime::kKeepsTurn) {
  return MethodRules().one_at_a_time(how);
}

namespace internal {

/// Whether the text is one that the pattern stands for; see MethodRules.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace internal
}  // namespace sinew
