#include "sinew/examples/common/job.h"

#include <chrono>
#include <exception>
#include <iostream>
#include <utility>

#include "sinew/examples/common/credentials.h"

namespace examples {
namespace {

// As after a mistake in the flags.
constexpr int kUsageError = 2;

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

// Whether it was not evicted before.
bool stays_until_the_end(const sinew::Worker& worker) {
  try {
    take_part(worker, [](const sinew::Worker&) { return 0; });
    return true;
  } catch (const sinew::RpcError& error) {
    if (error.code() != sinew::ErrorCode::kAborted) throw;
    return false;
  }
}

// When `run` throws, says so in the name of `program`.
int report_errors(const std::string& program, const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::cerr << program << ": " << error.what() << std::endl;
    return kFailed;
  }
}

}  // namespace

std::variant<sinew::LaunchPlace, int> find_place(const JobShape& job) {
  const auto refuse = [&](const std::string& reason) {
    std::cerr << job.program << ": " << reason << "\nStart it so: " << job.command << std::endl;
    return kUsageError;
  };
  try {
    const sinew::LaunchPlace place = sinew::launch_place();
    if (place.world_size >= job.least && place.world_size <= job.most) return place;
    const std::string sizes = job.least == job.most
                                  ? std::to_string(job.least)
                                  : std::to_string(job.least) + " to " + std::to_string(job.most);
    return refuse("a job of " + std::to_string(place.world_size) + " processes, and it takes " +
                  sizes);
  } catch (const sinew::RpcError& error) {
    return refuse(error.message());
  }
}

sinew::Worker join_job(sinew::WorkerOptions options) {
  options.credentials = credentials_of(options.name);
  return sinew::init_rpc(std::move(options));
}

int run_job(const std::string& program, const std::function<sinew::Worker()>& start,
            const std::function<int(const sinew::Worker&)>& work) {
  return report_errors(program, [&] { return take_part(start(), work); });
}

int serve_job(const std::string& program, const std::function<sinew::Worker()>& start) {
  return report_errors(program, [&] {
    while (!stays_until_the_end(start())) {
      std::cerr << program << ": was out of the job, and joins it again" << std::endl;
    }
    return 0;
  });
}

}  // namespace examples
