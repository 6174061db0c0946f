#include <stdexcept>

#include "concepts.h"
#include "sinew/launch/spawn.h"

namespace basics {
namespace {

void fail_at_one(int rank) {
  if (rank == 1) throw std::runtime_error("this rank does not want to");
  print_line("Rank " + std::to_string(rank) + " is well");
}

}  // namespace

void spawn_failure(int nproc) {
  try {
    sinew::spawn(&fail_at_one, nproc);
  } catch (const sinew::SpawnError& error) {
    print_line("Rank " + std::to_string(error.rank()) + " " + error.end().text());
    print_line(error.what());
  }
}

}  // namespace basics
