#include "sinew/sinew.h"

namespace app {
int length(const char* text);
}
SINEW_METHOD(app::length);

int call(const sinew::Peer& peer) { return peer.call<&app::length>("text"); }
