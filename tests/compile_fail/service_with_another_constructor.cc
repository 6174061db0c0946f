#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  explicit Agent(const std::string& name);
};
}  // namespace app
SINEW_SERVICE(app::Agent, (int));
