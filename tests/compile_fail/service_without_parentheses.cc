#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
};
}  // namespace app
SINEW_SERVICE(app::Agent, act);
