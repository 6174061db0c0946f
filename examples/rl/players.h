#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent.h"
#include "observer.h"
#include "options.h"
#include "sinew/rpc/worker.h"
#include "sinew/rref/team.h"

namespace rl {

/// The agent, which is published as "agent", and an observer at every other worker, also at those
/// that join later. ClientObservers play along (client_observers.h). For one thread.
class Players {
 public:
  /// Takes a line for people about the team.
  using Tell = std::function<void(const std::string& line)>;

  /// Waits for the observers at the workers that are there.
  Players(const sinew::Worker& worker, const Options& options, Tell tell);
  ~Players();

  /// Lets all observers play one episode and waits for them, however long they take. Returns the
  /// steps of those that have come to the end and are still there: finish_episode() learns from
  /// these.
  ///
  /// An observer whose worker is lost leaves the team. One that has joined since the last episode,
  /// also again under its name, plays from now on; when there is nobody, it waits for one. Throws
  /// std::runtime_error when none comes within `patience_s`, RpcError when playing fails otherwise.
  /// 0: the process was asked to end, and nobody has played.
  std::int64_t run_episode();
  EpisodeResult finish_episode() { return agent_->call<&Agent::finish_episode>(); }

  const sinew::RRef<Agent>& agent() const { return *agent_; }
  std::size_t observers() const { return team_.size(); }
  /// Average reward at which the task counts as solved. The usual mark is 475 for episodes of 500
  /// steps; when observers share the steps, each can get only its part of both.
  double goal() const;

 private:
  /// One that has come to its end.
  struct Play {
    sinew::WorkerInfo worker;
    std::int64_t steps;
  };

  bool await_one() const;
  bool knows(const sinew::WorkerInfo& worker) const;
  void greet();
  void lose(const sinew::WorkerInfo& worker);
  std::vector<Play> play();
  void tell(const ClientNews& news) const;
  std::int64_t await_clients() const;

  const sinew::Worker worker_;
  const Options options_;
  const Tell tell_;
  const std::int64_t steps_per_observer_;
  const std::shared_ptr<sinew::RRef<Agent>> agent_;
  const sinew::Team<Observer> team_;
  std::vector<sinew::WorkerInfo> known_;
};

}  // namespace rl
