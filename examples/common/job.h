#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <variant>

#include "sinew/rpc/base/launch_place.h"
#include "sinew/rpc/worker.h"

/// What the processes of a job have in common, whose rank 0 leads.
namespace examples {

/// What a program ends with when its job failed.
inline constexpr int kFailed = 3;

/// How many processes a program's job has, and a command that starts one: for whoever has not.
struct JobShape {
  std::string program;
  std::string command;
  int least = 2;
  int most = 1024;
};

/// The place that sinew-run, or whoever else has started this process, has given it. When there is
/// none, or the job is too small or too large, says so on the terminal; the result is then the exit
/// status of the program: 2.
std::variant<sinew::LaunchPlace, int> find_place(const JobShape& job);

/// init_rpc() with the credentials that the environment names (credentials.h); tells the address
/// (address_file.h).
sinew::Worker join_job(sinew::WorkerOptions options);

/// How long a leader that is asked to end may take to end its job; a container engine kills after
/// 10 s.
inline constexpr std::chrono::seconds kStopPatience{8};

/// Starts a worker and does `work` with it; returns what `work` does. The others stay until the
/// leader shuts down. When anything throws, says so in the name of `program`, waits for nobody, and
/// returns kFailed.
///
/// When the process is asked to end (stop_signal.h) the worker leaves the job, what it waits for
/// throws, and the result is stopped_status(). A leader's does so only after kStopPatience: its
/// `work` looks at StopSignal::requested(), and returns early.
int run_job(const std::string& program, const std::function<sinew::Worker()>& start,
            const std::function<int(const sinew::Worker&)>& work);

/// The same for one that only answers calls: returns 0 when the leader has shut down, or is lost. A
/// worker that is evicted, since it was stopped for longer than its lease, is followed by another
/// one, which has nothing of what that one held.
int serve_job(const std::string& program, const std::function<sinew::Worker()>& start);

}  // namespace examples
