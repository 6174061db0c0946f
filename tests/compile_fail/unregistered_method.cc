#include "sinew/sinew.h"

namespace app {
int add(int a, int b);
}

int call(const sinew::Peer& peer) { return peer.call<&app::add>(1, 2); }
