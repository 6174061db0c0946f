// Mistakes with objects that are made elsewhere, and in calls on references.
#include <string>

#include "sinew/sinew.h"

// Each mistake has a function or a class of its own: a compiler speaks once of what is instantiated
// twice.
namespace app {
class Agent {
 public:
  explicit Agent(int seed);
  Agent(int seed, double rate);
  int act(int state);
  int rest(int state);
  int look(int state);
};
class Player {
 public:
  explicit Player(const std::string& name);
};
class Observer {
 public:
  explicit Observer(int seed);
};
int act(int state);
}  // namespace app
SINEW_SERVICE(app::Agent, (int), act, rest);
SINEW_SERVICE(app::Player, (const std::string&));
SINEW_METHOD(app::act);

void make(const sinew::Peer& peer) {
  // error: Sinew: this class has no name here: write SINEW_SERVICE
  sinew::RRef<app::Observer> class_without_a_name = peer.remote<app::Observer>(1);

  // error: Sinew: this constructor has no name here: write SINEW_CONSTRUCTOR
  auto constructor_without_a_name = peer.remote<app::Agent(int, double)>(1, 2.0);

  // error: Sinew: an argument of this call cannot be converted to the parameter's type
  sinew::RRef<app::Player> wrong_constructor_argument = peer.remote<app::Player>(5.0);
}

void call(const sinew::RRef<app::Agent>& agent, const sinew::RRef<app::Observer>& observer) {
  // error: Sinew: this method has no name here: write SINEW_METHOD
  int unregistered_member = agent.call<&app::Agent::look>(1);

  // error: Sinew: wrong number of arguments for this method
  int too_many_arguments = agent.call<&app::Agent::act>(1, 2);

  // error: Sinew: a free function is called on a peer, not on an RRef
  int free_function_on_a_reference = agent.call<&app::act>(1);

  // error: Sinew: this member function belongs to another class
  int member_of_another_class = observer.call<&app::Agent::rest>(1);
}

void fetch(const sinew::RRef<app::Observer>& observer) {
  // error: Sinew: a value of this type cannot travel: call its methods through the RRef
  app::Observer to_here_of_what_cannot_travel = observer.to_here();
}
