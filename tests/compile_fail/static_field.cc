#include "sinew/sinew.h"

namespace app {
struct Settings {
  double gamma = 1;
  static double lambda;
};
void use(const Settings& settings);
}  // namespace app
SINEW_STRUCT(app::Settings, gamma, lambda);
SINEW_METHOD(app::use);

void serve(sinew::MethodTable& methods) { methods.add<&app::use>(); }
