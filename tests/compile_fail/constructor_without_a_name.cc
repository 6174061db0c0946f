#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  explicit Agent(int seed);
  Agent(int seed, double rate);
};
}  // namespace app
SINEW_CLASS(app::Agent, int);

sinew::RRef<app::Agent> call(const sinew::Peer& peer) {
  return sinew::remote<app::Agent(int, double)>(peer, 1, 2.0);
}
