#include <string>

#include "sinew/sinew.h"

namespace app {
int length(const std::string& text);
}
SINEW_METHOD(app::length);

int call(const sinew::Peer& peer) { return peer.call<&app::length>(5.0); }
