#include "sinew/sinew.h"

namespace app {
struct Settings {
  double gamma() const;
  double lambda = 1;
};
void use(const Settings& settings);
}  // namespace app
SINEW_STRUCT(app::Settings, gamma, lambda);
SINEW_METHOD(app::use);

void serve(sinew::MethodTable& methods) { methods.add<&app::use>(); }
