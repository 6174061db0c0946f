#include "sinew/examples/common/job.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <iostream>
#include <memory>
#include <mutex>
#include <utility>

#include "sinew/examples/common/address_file.h"
#include "sinew/examples/common/credentials.h"
#include "sinew/examples/common/stop_signal.h"

namespace examples {
namespace {

// As after a mistake in the flags.
constexpr int kUsageError = 2;

// A job that trains takes as long as it takes. A leader that is lost ends the wait at once.
constexpr auto kLongestJob = std::chrono::hours(24 * 365);

// Waits for nobody: the others know at once that this one has gone.
void leave_at_once(const sinew::Worker& worker) {
  sinew::ShutdownOptions at_once;
  at_once.graceful = false;
  worker.shutdown(at_once);
}

/// Has a worker leave its job when the process is asked to end: at once, and one that leads after
/// kStopPatience, unless it has ended the job by then.
class Leaver {
 public:
  Leaver(const sinew::Worker& worker, StopSignal& stop) : part_(std::make_shared<Part>()) {
    stop.then([part = part_, worker] {
      if (worker.rank() == 0 && part->is_over_within(kStopPatience)) return;
      leave_at_once(worker);
    });
  }
  ~Leaver() { part_->end(); }

 private:
  // The signal may come when the object goes.
  class Part {
   public:
    bool is_over_within(std::chrono::nanoseconds time) {
      std::unique_lock<std::mutex> lock(mutex_);
      return changed_.wait_for(lock, time, [this] { return is_over_; });
    }
    void end() {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_over_ = false;
  };

  const std::shared_ptr<Part> part_;
};

int take_part(const sinew::Worker& worker, StopSignal& stop,
              const std::function<int(const sinew::Worker&)>& work) {
  const Leaver leaver(worker, stop);
  try {
    const int status = work(worker);
    sinew::ShutdownOptions together;
    if (worker.rank() != 0) together.timeout = kLongestJob;
    worker.shutdown(together);
    return status;
  } catch (const sinew::RpcError& error) {
    leave_at_once(worker);
    // Its own shutdown has ended what it waited for, or the others were asked too. Any other error
    // is one, whoever has asked for what.
    if (is_end_of_others(error) && StopSignal::requested()) return stopped_status();
    throw;
  } catch (...) {
    leave_at_once(worker);
    throw;
  }
}

// Whether it was not evicted before.
bool stays_until_the_end(const sinew::Worker& worker, StopSignal& stop) {
  try {
    take_part(worker, stop, [](const sinew::Worker&) { return 0; });
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
  sinew::Worker worker = sinew::init_rpc(std::move(options));
  tell_address(worker);
  return worker;
}

int run_job(const std::string& program, const std::function<sinew::Worker()>& start,
            const std::function<int(const sinew::Worker&)>& work) {
  StopSignal stop;
  return report_errors(program, [&] { return take_part(start(), stop, work); });
}

int serve_job(const std::string& program, const std::function<sinew::Worker()>& start) {
  StopSignal stop;
  return report_errors(program, [&] {
    while (!stays_until_the_end(start(), stop)) {
      std::cerr << program << ": was out of the job, and joins it again" << std::endl;
      // There is no worker that could leave.
      stop.then({});
      if (StopSignal::requested()) break;
    }
    return StopSignal::requested() ? stopped_status() : 0;
  });
}

}  // namespace examples
