#include "sinew/sinew.h"

namespace app {
class Player {
 public:
  int act(int state);
};
class Agent : public Player {};
}  // namespace app
SINEW_SERVICE(app::Agent, (), act);
