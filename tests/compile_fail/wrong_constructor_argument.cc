#include <string>

#include "sinew/sinew.h"

namespace app {
class Agent {
 public:
  explicit Agent(const std::string& name);
};
}  // namespace app
SINEW_CLASS(app::Agent, const std::string&);

sinew::RRef<app::Agent> call(const sinew::Peer& peer) {
  return sinew::remote<app::Agent>(peer, 5.0);
}
