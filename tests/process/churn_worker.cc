// A worker of tools/churn: it works all the time, and starts again when it was evicted, as programs
// should. What happens is told on stdout, in lines that begin with "event":
//
//   event joined RANK:NAME:INCARNATION
//   event refused CODE TEXT          it could not join; it tries again
//   event evicted CODE TEXT          what its calls fail with since; it starts again
//   event wrong TEXT                 somebody gave a wrong answer
//   event unexplained CODE TEXT      a call failed as no loss makes it fail
//   event left_late CODE TEXT        what its leaving failed with
//
// It does what its standard input says, a line at a time that begins with a number, and answers
// each with one line that begins with that number: see churn::Life::answer().
//
// Arguments: name=, init=, lease_ms=, pause_ms=, and if they are not left to Sinew rank=, world=.

#include <sys/prctl.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "sinew/tests/process/churn_arguments.h"
#include "sinew/tests/process/churn_life.h"
#include "sinew/tests/process/churn_work.h"

namespace {

churn::LifeOptions life_of(const churn::Arguments& arguments) {
  // Of all lives, as the process.
  static churn::Tally& tally = *new churn::Tally();
  churn::LifeOptions life;
  life.worker = arguments.worker;
  life.worker.methods = churn::methods();
  life.tally = &tally;
  life.begin_anew = churn::forget;
  life.make_work = [pause = arguments.pause](const sinew::Worker& worker) {
    return std::make_unique<churn::Work>(worker, pause, tally);
  };
  life.give_up = [] { churn::memory()->close(); };
  return life;
}

}  // namespace

int main(int argc, char** argv) {
  // Who drives it takes its processes along when it dies, also those that are stopped.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    churn::Life& life = *new churn::Life(life_of(churn::read_arguments(argc, argv)));
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string number;
      words >> number;
      std::cout << absl::StrCat(number, " ", life.answer(words), "\n") << std::flush;
    }
  } catch (const std::exception& error) {
    std::cerr << "churn_worker: " << error.what() << std::endl;
    std::_Exit(2);
  }
  // Nobody drives it any more.
  std::_Exit(0);
}
