#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int seed = 0;
};
}  // namespace app

app::Agent fetch(const sinew::RRef<app::Agent>& agent) { return agent.to_here(); }
