#include "sinew/sinew.h"

namespace app {
int add(int a, int b);
}

int call(const sinew::Peer& peer) { return sinew::rpc_sync<&app::add>(peer, 1, 2); }
