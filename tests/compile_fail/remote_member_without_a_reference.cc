#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
};
}  // namespace app
SINEW_METHOD(app::Agent::act);

sinew::RRef<int> call(const sinew::Peer& peer) { return peer.remote<&app::Agent::act>(1); }
