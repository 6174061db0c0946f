#include "sinew/sinew.h"

namespace app {
void increment(int& number);
}
SINEW_METHOD(app::increment);

void call(const sinew::Peer& peer, int& number) { peer.call<&app::increment>(number); }
