#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  explicit Agent(int seed);
};
}  // namespace app

sinew::RRef<app::Agent> call(const sinew::Peer& peer) { return peer.remote<app::Agent>(1); }
