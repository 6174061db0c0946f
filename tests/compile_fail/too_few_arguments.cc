#include "sinew/sinew.h"

namespace app {
int add(int a, int b = 1);
}
SINEW_METHOD(app::add);

int call(const sinew::Peer& peer) { return peer.call<&app::add>(1); }
