#include <string>

#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  explicit Agent(const std::string& name);
};
}  // namespace app
SINEW_SERVICE(app::Agent, (const std::string&));

sinew::RRef<app::Agent> call(const sinew::Peer& peer) { return peer.remote<app::Agent>(5.0); }
