#include "sinew/sinew.h"

namespace app {
struct Settings {
  double gamma = 1;
  double lambda = 1;
};
}  // namespace app
SINEW_STRUCT(app::Settings, gamma, gamma);
