#include "sinew/sinew.h"

namespace app {
class Agent {};
int act(int state);
}  // namespace app
SINEW_METHOD(app::act);

int call(const sinew::RRef<app::Agent>& agent) { return agent.call<&app::act>(1); }
