#include "sinew/sinew.h"

namespace app {
class Socket {
 public:
  int handle = 0;
};
Socket open(int port);
}  // namespace app
SINEW_METHOD(app::open);

void call(const sinew::Peer& peer) { peer.call<&app::open>(80); }
