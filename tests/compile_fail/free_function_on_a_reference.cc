#include "sinew/sinew.h"

namespace app {
class Agent {};
int act(int state);
}  // namespace app
SINEW_METHOD(app::act);

int call(const sinew::RRef<app::Agent>& agent) { return sinew::rpc_sync<&app::act>(agent, 1); }
