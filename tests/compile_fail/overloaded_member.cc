#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  int act(int state);
  int act(double state);
};
}  // namespace app
SINEW_SERVICE(app::Agent, (), act);
