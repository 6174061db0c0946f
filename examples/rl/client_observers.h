#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rpc/rpc.h"

namespace rl {

/// What has become of clients since they were asked for last.
struct ClientNews {
  std::vector<std::string> joined;
  /// Their connection has ended, or they did nothing for long.
  std::vector<std::string> lost;
  /// How many play.
  std::int64_t playing = 0;
  /// Of those that have played this episode to its end.
  std::int64_t steps = 0;
};

/// Observers that are clients and no workers, such as rl/observer.py. They call the agent, and are
/// not called. Not thread-safe.
class ClientObservers {
 public:
  /// Throws std::invalid_argument when there are too many.
  void add(std::int64_t id, const std::string& name);

  /// By a client: its next episode, when that begins, with how many steps it has at most; 0: there
  /// is none any more. Throws std::invalid_argument for an id that no client has, as end_episode()
  /// does.
  sinew::Future<std::int64_t> next_episode(std::int64_t id);
  /// By a client that plays; ignored from observers that are workers.
  void step(std::int64_t id);
  void end_episode(std::int64_t id);

  /// Those that wait play from now on.
  ClientNews begin(std::int64_t max_steps);
  /// Complete when none plays any more.
  sinew::Future<void> played();
  /// Those that play and have made no step since it was called last are lost.
  ClientNews drop_silent();
  /// No episode begins any more.
  void dismiss();
  /// Ids of the lost ones, since it was called last.
  std::vector<std::int64_t> take_lost();

 private:
  struct Client {
    std::string name;
    bool is_told = false;
    bool plays = false;
    std::int64_t steps = 0;
    std::int64_t seen_steps = 0;
    std::optional<sinew::Promise<std::int64_t>> waits;
    sinew::CancellationToken gives_up;
  };
  using Position = std::map<std::int64_t, Client>::iterator;

  Client& client(std::int64_t id);
  std::int64_t playing() const;
  std::int64_t steps() const;
  Position lose(Position client, ClientNews& news);

  std::map<std::int64_t, Client> clients_;
  std::vector<std::int64_t> lost_;
  std::optional<sinew::Promise<void>> played_;
  bool is_over_ = false;
};

}  // namespace rl

SINEW_STRUCT(rl::ClientNews, joined, lost, playing, steps);
