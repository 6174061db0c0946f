#include "sinew/sinew.h"

namespace app {
struct Agent {
  int seed = 0;
};
}  // namespace app
SINEW_SERVICE(app::Agent, (), seed);
