#include "sinew/sinew.h"

namespace app {
int read(const sinew::Future<int>& number);
}
SINEW_METHOD(app::read);

int call(const sinew::Peer& peer) { return peer.call<&app::read>(sinew::make_ready_future(1)); }
