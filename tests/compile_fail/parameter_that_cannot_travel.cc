#include "sinew/sinew.h"

namespace app {
class Socket {
 public:
  int handle = 0;
};
int send(const Socket& socket);
}  // namespace app
SINEW_METHOD(app::send);

int call(const sinew::Peer& peer) { return peer.call<&app::send>(app::Socket()); }
