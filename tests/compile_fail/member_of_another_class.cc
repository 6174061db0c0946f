#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
};
class Observer {};
}  // namespace app
SINEW_METHOD(app::Agent::act);

int call(const sinew::RRef<app::Observer>& observer) {
  return sinew::rpc_sync<&app::Agent::act>(observer, 1);
}
