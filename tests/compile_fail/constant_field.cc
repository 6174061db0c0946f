#include "sinew/sinew.h"

namespace app {
struct Settings {
  const double gamma = 1;
};
void use(const Settings& settings);
}  // namespace app
SINEW_STRUCT(app::Settings, gamma);
SINEW_METHOD(app::use);

void serve(sinew::MethodTable& methods) { methods.add<&app::use>(); }
