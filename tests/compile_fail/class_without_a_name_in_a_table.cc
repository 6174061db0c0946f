#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  explicit Agent(int seed);
};
}  // namespace app

void fill(sinew::MethodTable& methods) { methods.serve<app::Agent>(); }
