#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  explicit Agent(int seed);
  Agent(int seed, double rate);
};
}  // namespace app
SINEW_SERVICE(app::Agent, (int));

sinew::RRef<app::Agent> call(const sinew::Peer& peer) {
  return peer.remote<app::Agent(int, double)>(1, 2.0);
}
