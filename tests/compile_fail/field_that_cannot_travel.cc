#include "sinew/sinew.h"

namespace app {
struct Settings {
  double gamma = 1;
  const char* name = "";
};
int make(const Settings& settings);
}  // namespace app
SINEW_STRUCT(app::Settings, gamma, name);
SINEW_METHOD(app::make);

int call(const sinew::Peer& peer) { return peer.call<&app::make>(app::Settings()); }
