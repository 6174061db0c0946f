#pragma once

/// Objects of one class at several members of the job, followed as members come and go:
/// Worker::team().

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "sinew/rpc/worker.h"
#include "sinew/rref/internal/name_finder.h"
#include "sinew/rref/internal/team_core.h"
#include "sinew/rref/remote.h"
#include "sinew/rref/team_calls.h"
#include "sinew/rref/team_options.h"

namespace sinew {

/// One member of a team whose object is ready.
template <class T>
struct TeamMember {
  WorkerInfo worker;
  RRef<T> object;
};

/// Objects of class T, one at each worker whose name matches: made there, or published by them. It
/// follows the job: a lost worker leaves the team, one that joins or returns gets an object
/// (TeamOptions). Calls go to those members that are ready at that moment, and one member's loss is
/// an error of its call alone.
///
///     sinew::Team<app::Observer> team = worker.team<app::Observer>("observer*", settings);
///     team.wait_for(2);
///     for (const auto& answer : team.call_all<&app::Observer::play>(agent)) {
///       if (answer.ok()) steps += answer.value();
///     }
///
/// Copies are the same team; with the last one it ends, and so do its references. Thread-safe.
template <class T>
class Team {
 public:
  /// None; using it throws RpcError kFailedPrecondition.
  Team() = default;
  explicit Team(std::shared_ptr<internal::TeamCore> core) : core_(std::move(core)) {}

  /// The members that are ready, in the order of their ranks.
  std::vector<TeamMember<T>> members() const {
    std::vector<TeamMember<T>> members;
    for (const internal::TeamCore::Ready& each : core().ready()) {
      members.push_back({each.worker, object(each)});
    }
    return members;
  }
  std::size_t size() const { return core().ready().size(); }
  /// Waits until so many are ready. `timeout` as in Worker::wait_for(). Throws RpcError
  /// kDeadlineExceeded, which says what the members do, and why objects could not be made. Blocks.
  void wait_for(std::size_t members,
                std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const {
    core().wait_for(members, timeout);
  }
  /// What each member does, for people.
  std::string describe() const { return core().describe(); }

  /// Calls the method at every member. A call that cannot be made is its member's error.
  template <auto Method, class... Args>
  auto call_all(const Args&... arguments) const {
    return call_each<Method>([&](const TeamMember<T>&) { return std::tie(arguments...); });
  }
  /// As call_all, with arguments of each member's own: `arguments_of(member)` returns their tuple.
  ///
  ///     shards.call_each<&app::Shard::load>([&](const auto& member) {
  ///       return std::make_tuple(part_of(member.worker.rank));
  ///     });
  template <auto Method, class ArgumentsOf>
  auto call_each(const ArgumentsOf& arguments_of) const {
    using Result = internal::ResultOfMethod<Method>;
    std::vector<TeamAnswer<Result>> calls;
    for (const internal::TeamCore::Ready& each : core().ready()) {
      const TeamMember<T> member{each.worker, object(each)};
      calls.push_back({each.worker, std::apply(
                                        [&](const auto&... arguments) {
                                          return call_one<Method, Result>(each, arguments...);
                                        },
                                        arguments_of(member))});
    }
    return TeamCalls<Result>(std::move(calls));
  }
  /// Calls the method at the member with the fewest calls of this team under way. One that did not
  /// run there, or that is lost and of a method named by SINEW_IDEMPOTENT, is made at another one,
  /// at each of them once at most. Fails with kUnavailable when no member is ready.
  template <auto Method, class... Args>
  auto call_any(const Args&... arguments) const {
    using Result = internal::ResultOfMethod<Method>;
    if constexpr (internal::check_member_call<Method, T, const Args&...>()) {
      // The parameters' own types: an argument may refer to what is gone by the next attempt.
      using Values = typename internal::MethodTraits<decltype(Method)>::values;
      const auto attempt =
          std::make_shared<Anywhere<Method, Result, Values>>(*this, Values(arguments...));
      attempt->next(nullptr);
      return attempt->future();
    } else {
      return Future<Result>();
    }
  }

  /// The same team, with other options for what is called through the result: RRef::with().
  Team with(CallOptions options) const {
    Team team = *this;
    team.options_ = std::move(options);
    return team;
  }
  Team within(std::chrono::nanoseconds timeout) const {
    Team team = *this;
    team.options_.timeout = timeout;
    return team;
  }

 private:
  template <auto Method, class Result, class Values>
  class Anywhere : public std::enable_shared_from_this<Anywhere<Method, Result, Values>> {
   public:
    Anywhere(Team team, Values arguments)
        : team_(std::move(team)), arguments_(std::move(arguments)) {}
    Future<Result> future() const { return promise_.future(); }

    /// `error`: of the attempt before.
    void next(std::exception_ptr error) {
      const std::optional<internal::TeamCore::Ready> member = team_.core().least_busy(tried_);
      if (!member) {
        if (error == nullptr) error = std::make_exception_ptr(team_.nobody());
        promise_.set_error(std::move(error));
        return;
      }
      tried_.push_back(member->worker.incarnation);
      std::apply(
          [&](const auto&... arguments) {
            return team_.template call_one<Method, Result>(*member, arguments...);
          },
          arguments_)
          .on_done([self = this->shared_from_this()](const Future<Result>& done) {
            self->on_done(done);
          });
    }

   private:
    void on_done(const Future<Result>& done) {
      const std::exception_ptr error = done.error();
      if (error != nullptr && internal::may_go_elsewhere(error, kIsIdempotent<Method>)) {
        return next(error);
      }
      if (error != nullptr) return promise_.set_error(error);
      if constexpr (std::is_void_v<Result>) {
        promise_.set_value();
      } else {
        promise_.set_value(done.value());
      }
    }

    const Team team_;
    const Values arguments_;
    const Promise<Result> promise_;
    std::vector<Incarnation> tried_;
  };

  RRef<T> object(const internal::TeamCore::Ready& member) const {
    return RRefAccess::make<T>(member.object).with(options_);
  }
  template <auto Method, class Result, class... Args>
  Future<Result> call_one(const internal::TeamCore::Ready& member, const Args&... arguments) const {
    member.in_flight->fetch_add(1, std::memory_order_relaxed);
    Future<Result> result;
    try {
      result = object(member).template async<Method>(arguments...);
    } catch (const RpcError&) {
      result = make_failed_future<Result>(std::current_exception());
    }
    result.on_done([in_flight = member.in_flight](const Future<Result>&) {
      in_flight->fetch_sub(1, std::memory_order_relaxed);
    });
    return result;
  }
  RpcError nobody() const {
    return RpcError(
        ErrorCode::kUnavailable,
        "team '" + core().name() + "' has no member that is ready: " + core().describe());
  }

  internal::TeamCore& core() const {
    if (core_ == nullptr) internal::throw_no_team();
    return *core_;
  }

  std::shared_ptr<internal::TeamCore> core_;
  CallOptions options_;
};

namespace internal {

/// A function of a Peer that makes a member's object, rather than an argument of its constructor.
template <class T, class... Args>
inline constexpr bool makes_member_v = false;
template <class T, class F>
inline constexpr bool makes_member_v<T, F> = std::is_invocable_r_v<RRef<T>, F, const Peer&>;

/// Whether the constructor that others call takes no arguments. Without any, a class of which that
/// is not so can only have been published.
template <class T>
constexpr bool is_made_of_nothing() {
  if constexpr (has_service_v<T>) {
    return MethodTraits<typename ServiceOf<T>::constructor>::parameters::size == 0;
  } else {
    return false;
  }
}
template <class T>
inline constexpr bool made_of_nothing_v = is_made_of_nothing<T>();

template <class T>
TeamCore::Make find_member(std::string name) {
  return [name = std::move(name)](const Worker& worker, const WorkerInfo& member) {
    return find_value(worker, member.name + "/" + name, typeid(T), kNoTimeout);
  };
}

/// `make` returns an RRef; what it is to is ready when its constructor has ended.
template <class T, class F>
TeamCore::Make make_member(F make) {
  return [make = std::move(make)](const Worker& worker, const WorkerInfo& member) {
    const RRef<T> object = make(worker.peer(member));
    return object.created().then([handle = RRefAccess::handle(object)] { return handle; });
  };
}

/// By the constructor that others call, with values of its parameters' types: arguments may refer
/// to what is gone when a member comes back.
template <class T, class... Args>
TeamCore::Make make_from(Args&&... arguments) {
  if constexpr (Making<T>::check()) {
    using Traits = MethodTraits<typename Making<T>::template constructor<>>;
    if constexpr (check_arguments(typename Traits::parameters(), TypeList<Args&&...>())) {
      return make_member<T>(
          [values = typename Traits::values(std::forward<Args>(arguments)...)](const Peer& peer) {
            return std::apply(
                [&peer](const auto&... each) { return peer.template remote<T>(each...); }, values);
          });
    }
  }
  return nullptr;
}

}  // namespace internal

template <class T, class... Args>
Team<T> Worker::team(const TeamOptions& options, Args&&... arguments) const {
  internal::TeamCore::Make make;
  const std::size_t slash = options.members.find('/');
  if (slash != std::string::npos) {
    if (sizeof...(Args) > 0) internal::throw_published_made(options.members);
    make = internal::find_member<T>(options.members.substr(slash + 1));
  } else if constexpr (internal::makes_member_v<T, std::decay_t<Args>...>) {
    make = internal::make_member<T>(std::forward<Args>(arguments)...);
  } else if constexpr (sizeof...(Args) == 0 && !internal::made_of_nothing_v<T>) {
    internal::throw_made_of_something(options.members);
  } else {
    make = internal::make_from<T>(std::forward<Args>(arguments)...);
  }
  auto core = std::make_shared<internal::TeamCore>(*this, options, std::move(make));
  core->start();
  return Team<T>(std::move(core));
}

}  // namespace sinew
