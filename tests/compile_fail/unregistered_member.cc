#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
};
}  // namespace app

int call(const sinew::RRef<app::Agent>& agent) {
  return sinew::rpc_sync<&app::Agent::act>(agent, 1);
}
