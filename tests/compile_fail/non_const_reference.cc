#include "sinew/sinew.h"

namespace app {
void increment(int& number);
}
SINEW_METHOD(app::increment);

void call(const sinew::Peer& peer, int& number) { sinew::rpc_sync<&app::increment>(peer, number); }
