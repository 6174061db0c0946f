#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
};
}  // namespace app
SINEW_METHOD(app::Agent::act);

int call(const sinew::Peer& peer) { return peer.call<&app::Agent::act>(1); }
