#include "sinew/sinew.h"

namespace app {
struct Settings {
  double gamma = 1;
};
SINEW_STRUCT(app::Settings, gamma);
}  // namespace app
