#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
};
}  // namespace app

int call(const sinew::RRef<app::Agent>& agent) { return agent.call<&app::Agent::act>(1); }
