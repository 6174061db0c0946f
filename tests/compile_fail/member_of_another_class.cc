#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
};
class Observer {};
}  // namespace app
SINEW_METHOD(app::Agent::act);

int call(const sinew::RRef<app::Observer>& observer) { return observer.call<&app::Agent::act>(1); }
