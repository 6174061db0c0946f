#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
};
}  // namespace app
SINEW_METHOD(app::Agent::act);

int call(const sinew::RRef<app::Agent>& agent) { return agent.call<&app::Agent::act>(1, 2); }
