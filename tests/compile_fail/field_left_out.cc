#include <optional>
#include <string>

#include "sinew/sinew.h"

namespace app {
struct Settings {
  double gamma = 1;
  std::optional<std::string> name;
  std::uint64_t seed = 0;
};
}  // namespace app
SINEW_STRUCT(app::Settings, gamma, seed);
