// Mistakes in SINEW_SERVICE, and in what a worker serves. Those of the macro have a namespace each,
// which their sentence names.
#include <string>

#include "sinew/sinew.h"

namespace service_without_parentheses {
class Agent {
 public:
  int act(int state);
};
}  // namespace service_without_parentheses
// error: Sinew: the name of the class is followed by the parameter types of its constructor
SINEW_SERVICE(service_without_parentheses::Agent, act);

namespace other_constructor {
class Agent {
 public:
  explicit Agent(const std::string& name);
};
}  // namespace other_constructor
// error: Sinew: other_constructor::Agent has no constructor that takes these parameter types
SINEW_SERVICE(other_constructor::Agent, (int));

namespace data_member_as_a_method {
struct Agent {
  int seed = 0;
};
}  // namespace data_member_as_a_method
// error: Sinew: data_member_as_a_method::Agent::seed is no function
SINEW_SERVICE(data_member_as_a_method::Agent, (), seed);

namespace overloaded_member {
class Agent {
 public:
  int act(int state);
  int act(double state);
};
}  // namespace overloaded_member
// error: Sinew: overloaded_member::Agent::act is overloaded or a function template
SINEW_SERVICE(overloaded_member::Agent, (), act);

namespace inherited_member {
class Player {
 public:
  int act(int state);
};
class Agent : public Player {};
}  // namespace inherited_member
// error: Sinew: inherited_member::Agent::act is a member function of a base class
SINEW_SERVICE(inherited_member::Agent, (), act);

namespace app {
class Agent {
 public:
  explicit Agent(int seed);
};
int add(int a, int b);
int length(const char* text);
inline constexpr auto kTwice = [](int number) { return 2 * number; };
}  // namespace app
SINEW_METHOD(app::length);

void fill(sinew::MethodTable& methods) {
  // error: Sinew: this method has no name here: write SINEW_METHOD
  methods.add<&app::add>();

  // error: Sinew: this class has no name here: write SINEW_SERVICE
  methods.serve<app::Agent>();

  // error: Sinew: this is no function: a lambda or an object has no name
  methods.add<&app::kTwice>();

  // error: Sinew: a remote method cannot take a pointer
  methods.add<&app::length>();
}
