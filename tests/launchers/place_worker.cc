// Finds its place in the environment, joins the job and calls every other worker. Prints one line:
// its place as launch_place() has it, and who answered.

#include <exception>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "sinew/rpc/base/launch_place.h"
#include "sinew/sinew.h"

namespace place {

int own_rank() { return sinew::launch_place().rank; }

}  // namespace place

SINEW_METHOD(place::own_rank);

namespace {

std::string shown(const std::optional<int>& number) {
  return number ? std::to_string(*number) : "?";
}

std::string call_the_others(const sinew::Worker& worker, const sinew::LaunchPlace& own) {
  std::ostringstream line;
  line << "rank " << own.rank << " of " << own.world_size << ", local " << shown(own.local_rank)
       << " of " << shown(own.local_world_size) << ", node " << shown(own.node_rank) << ", at "
       << own.master_address.value_or("?") << ":" << shown(own.master_port) << ", called";
  for (int rank = 0; rank < own.world_size; ++rank) {
    if (rank != worker.rank()) line << " " << worker.peer(rank).call<&place::own_rank>();
  }
  line << "\n";
  return line.str();
}

}  // namespace

int main() {
  try {
    const sinew::LaunchPlace own = sinew::launch_place();
    sinew::MethodTable methods;
    methods.add<&place::own_rank>();
    const sinew::Worker worker =
        sinew::init_rpc("rank" + std::to_string(own.rank), std::move(methods));
    // In one piece: the launcher collects the output of several.
    std::cout << call_the_others(worker, own) << std::flush;
    worker.shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "place_worker: " << error.what() << std::endl;
    return 3;
  }
}
