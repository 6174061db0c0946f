#include "sinew/examples/common/job.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>

namespace examples {
namespace {

// A job that trains takes as long as it takes. A leader that is lost ends the wait at once.
constexpr auto kLongestJob = std::chrono::hours(24 * 365);

int take_part(const sinew::Worker& worker, const std::function<int(const sinew::Worker&)>& work) {
  try {
    const int status = work(worker);
    sinew::ShutdownOptions together;
    if (worker.rank() != 0) together.timeout = kLongestJob;
    worker.shutdown(together);
    return status;
  } catch (...) {
    // Nobody is waited for: somebody may be lost.
    sinew::ShutdownOptions at_once;
    at_once.graceful = false;
    worker.shutdown(at_once);
    throw;
  }
}

}  // namespace

std::string name_by_rank(const std::string& name) {
  const char* rank = std::getenv("RANK");
  return rank == nullptr ? name : name + rank;
}

int run_job(const std::string& program, const std::function<sinew::Worker()>& start,
            const std::function<int(const sinew::Worker&)>& work) {
  try {
    return take_part(start(), work);
  } catch (const std::exception& error) {
    std::cerr << program << ": " << error.what() << std::endl;
    return kFailed;
  }
}

}  // namespace examples
