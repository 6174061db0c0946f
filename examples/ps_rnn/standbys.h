#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "model.h"
#include "sinew/optim/standby.h"
#include "sinew/sinew.h"

namespace ps_rnn {

/// What trainers use of the servers.
struct Served {
  ServerModel model;
  sinew::optim::DistributedOptimizer optimizer;
};

/// For each server a process that mirrors it, and takes its place when it is lost; the lost one is
/// the next to stand by, once it has been started again under its name. Not thread-safe.
class Standbys {
 public:
  /// The names of two processes, of which one is the server and the other one stands by.
  struct Pair {
    std::string server;
    std::string standby;
  };
  /// `pairs`: by server; empty: there are no standbys. `patience`: how long a process may take to
  /// be started again.
  Standbys(const sinew::Worker& worker, const std::vector<Pair>& pairs,
           const ModelSettings& settings, const sinew::optim::Options& options,
           std::chrono::seconds patience);

  /// Waits until there is one for each server, and has caught up.
  void await(const Served& served);
  /// Has those that have been started again catch up, meanwhile. Does not wait.
  void look(const Served& served);
  /// Servers that have one which has caught up.
  std::int64_t count() const;
  /// Has them take the places of the servers that are lost, in the round that has begun after
  /// `done` steps of an epoch. False when no server is lost, or one has no standby that has caught
  /// up: then nothing has changed.
  bool take_over(Served& served, std::int64_t epoch, std::int64_t done);
  /// After servers have gone back to a checkpoint: those that were made anew have no standby yet.
  void forget();

 private:
  struct Mirror {
    ServerModel model;
    sinew::optim::Standby standby;
  };
  struct Place {
    Pair pair;
    /// That it can be called.
    sinew::Future<sinew::RRef<std::string>> ready;
    /// That it has caught up.
    std::future<Mirror> catching_up;
    std::optional<Mirror> mirror;
  };

  void look_at(std::int64_t shard, const Served& served);
  void begin_to_catch_up(std::int64_t shard, const Served& served, const sinew::Peer& process);
  /// Waits for one that is catching up.
  void finish(Place& place);
  /// Which of the two is not the server now.
  std::string address(std::int64_t shard, const Served& served) const;

  const sinew::Worker worker_;
  const ModelSettings settings_;
  const sinew::optim::Options options_;
  const std::chrono::seconds patience_;
  // By server.
  std::vector<Place> places_;
};

}  // namespace ps_rnn
