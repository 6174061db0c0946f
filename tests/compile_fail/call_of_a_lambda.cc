#include "sinew/sinew.h"

namespace app {
inline constexpr auto kTwice = [](int number) { return 2 * number; };
}

int call(const sinew::Peer& peer) { return peer.call<&app::kTwice>(1); }
