// Mistakes in calls of a peer.
#include <string>

#include "sinew/sinew.h"

// Each mistake has a function of its own: a compiler speaks once of what is instantiated twice.
namespace app {
struct Address {};
class Socket {
 public:
  int handle = 0;
};
struct Settings {
  double rate = 0.1;
};
class Agent {
 public:
  int act(int state);
  int rest(int state);
};

int add(int a, int b = 1);
int subtract(int a, int b);
int multiply(int a, int b);
int divide(int a, int b);
int power(int a, int b);
int length(const std::string& text);
int size(const char* text);
void increment(int& number);
int send(const Socket& socket);
int read(const sinew::Future<int>& number);
Socket open(int port);
int plan(const Settings& settings);
Settings settings();
inline constexpr auto kTwice = [](int number) { return 2 * number; };
}  // namespace app
SINEW_METHOD(app::add, app::subtract, app::multiply, app::length, app::size, app::increment,
             app::send, app::read, app::open, app::plan, app::settings, app::Agent::act,
             app::Agent::rest);

void methods(const sinew::Peer& peer) {
  // error: Sinew: this method has no name here: write SINEW_METHOD
  int unregistered_method = peer.call<&app::divide>(1, 2);

  // error: Sinew: this method has no name here: write SINEW_METHOD
  int method_named_after_its_use = peer.call<&app::power>(1, 2);

  // error: Sinew: this is no function: a lambda or an object has no name
  int call_of_a_lambda = peer.call<&app::kTwice>(1);

  // error: Sinew: a member function is called on an RRef<Class>, not on a peer
  int member_without_a_reference = peer.call<&app::Agent::act>(1);

  // error: Sinew: a member function is called on an RRef<Class>, not on a peer
  sinew::RRef<int> remote_member_without_a_reference = peer.remote<&app::Agent::rest>(1);
}
// That this comes too late the compilers say in words of their own.
// error: after instantiation
SINEW_METHOD(app::power);

void destinations(const sinew::Worker& worker) {
  // error: Sinew: a peer is named by its name, rank, WorkerInfo or Peer
  int fractional_destination = worker.peer(1.5).call<&app::subtract>(1, 2);

  // error: Sinew: a peer is named by its name, rank, WorkerInfo or Peer
  int destination_of_another_type = worker.peer(app::Address()).call<&app::multiply>(1, 2);
}

void arguments(const sinew::Peer& peer, int& number) {
  // error: Sinew: wrong number of arguments for this method
  int too_few_arguments = peer.call<&app::add>(1);

  // error: Sinew: an argument of this call cannot be converted to the parameter's type
  int wrong_argument_type = peer.call<&app::length>(5.0);

  // error: Sinew: a remote method cannot take a pointer
  int pointer_parameter = peer.call<&app::size>("text");

  // error: Sinew: a remote method cannot take a non-const reference
  peer.call<&app::increment>(number);

  // error: Sinew: a parameter of this method has a type that cannot travel
  int parameter_that_cannot_travel = peer.call<&app::send>(app::Socket());

  // error: cannot travel: if it is a struct of yours, list its fields with SINEW_STRUCT
  int plain_struct_as_argument = peer.call<&app::plan>(app::Settings());

  // error: Sinew: a parameter of this method has a type that cannot travel
  int future_as_argument = peer.call<&app::read>(sinew::make_ready_future(1));

  // error: Sinew: the result of this method has a type that cannot travel
  peer.call<&app::open>(80);

  // error: where it is made; or, if it is a struct of yours, list its fields with SINEW_STRUCT
  peer.call<&app::settings>();
}
