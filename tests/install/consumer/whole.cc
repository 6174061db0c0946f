// A worker with all layers, and what it gets of one that has references alone.

#include <sinew/sinew.h>

#include <iostream>
#include <string>

#include "part.h"

namespace {

// Without the layer it would be a number that no backward pass reaches.
bool is_refused_in_a_context(const sinew::Worker& worker) {
  const sinew::autograd::Context context(worker);
  try {
    worker.peer("part").call<&app::twice>(at::ones({2}).requires_grad_());
  } catch (const sinew::RpcError& error) {
    std::cout << error.what() << "\n";
    return error.code() == sinew::ErrorCode::kUnimplemented &&
           error.execution() == sinew::Execution::kDidNotRun &&
           std::string(error.what()).find("'part' has no layer 'autograd'") != std::string::npos;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const sinew::Worker worker = sinew::init_rpc(app::member("whole", 0, argv[1]));
  const sinew::Peer part = worker.peer("part");
  const bool works = part.call<&app::twice>(at::ones({2})).equal(at::full({2}, 2.0)) &&
                     worker.peer("part").remote<app::Counter>().call<&app::Counter::add>(42) == 42;
  const bool is_refused = is_refused_in_a_context(worker);
  worker.shutdown();
  return works && is_refused ? 0 : 1;
}
