#include "sinew/launch/internal/spawn_job.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/launch/spawn_error.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/job_token.h"

namespace sinew::internal {
namespace {

constexpr auto kForEver = std::chrono::hours(24 * 365);

FileDescriptor open_nothing() {
  FileDescriptor result(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!result.valid()) throw_error(absl::ErrnoToStatus(errno, "cannot open /dev/null"));
  return result;
}

std::string who(std::size_t rank, pid_t pid) {
  return absl::StrCat("spawned process ", rank, pid < 0 ? "" : absl::StrCat(" (pid ", pid, ")"));
}

std::string thrown_text(const ErrorInfo& error) {
  return error.type_name.empty()
             ? absl::StrCat("failed: ", error.message)
             : absl::StrCat("threw ", error.type_name, ": ", error.remote_message);
}

}  // namespace

SpawnJob::SpawnJob(std::size_t processes, const SpawnOptions& options, FileDescriptor task,
                   std::vector<std::string> arguments)
    : options_(options),
      task_(std::move(task)),
      arguments_(std::move(arguments)),
      owner_(::getpid()),
      exceptions_before_(std::uncaught_exceptions()),
      nothing_(open_nothing()),
      job_token_(own_job_token(options.nodes, options.master_port)),
      reports_(processes),
      supervisor_(
          [&] {
            Supervisor::Job job;
            job.rules.processes = processes;
            job.rules.grace = options.grace;
            job.start = [this](std::size_t process, int) { return start(process); };
            job.on_change = [this] { on_change(); };
            return job;
          }(),
          relay_),
      pids_(processes, -1) {
  place_.nodes = options.nodes;
  place_.node_rank = options.node_rank;
  place_.roles = {{"default", processes}};
  place_.master_addr = options.master_addr;
  place_.master_port = options.master_port;
  if (options.master_port == 0) {
    absl::StatusOr<PortReservation> port = PortReservation::make();
    if (!port.ok()) throw_error(port.status());
    port_ = *std::move(port);
    place_.master_port = port_->port();
  }
  // Handlers of this process are for its own threads.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &blocked_signals_);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    ::pthread_sigmask(SIG_SETMASK, &blocked_signals_, nullptr);
    throw RpcError(ErrorCode::kResourceExhausted,
                   absl::StrCat("cannot start a thread to watch processes: ", error.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &blocked_signals_, nullptr);
  MutexLock lock(mutex_);
  while (!all_started_) changed_.wait(mutex_);
}

SpawnJob::~SpawnJob() {
  if (::getpid() != owner_) {
    // A fork of it: the thread is not here, and the processes are not its own.
    thread_.detach();
    return;
  }
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_before_;
  if (options_.kind == SpawnOptions::Kind::kDaemon || is_unwinding) terminate();
  thread_.join();
}

bool SpawnJob::join(std::chrono::milliseconds timeout) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, kForEver);
  MutexLock lock(mutex_);
  while (!is_over_ && std::chrono::steady_clock::now() < deadline) {
    changed_.wait_until(mutex_, deadline);
  }
  if (!is_over_) return false;
  if (error_ != nullptr) std::rethrow_exception(error_);
  return true;
}

std::vector<pid_t> SpawnJob::pids() const {
  MutexLock lock(mutex_);
  return pids_;
}

void SpawnJob::terminate() {
  {
    MutexLock lock(mutex_);
    // A second request would kill.
    if (std::exchange(is_terminated_, true)) return;
  }
  supervisor_.stop(SIGTERM);
}

ChildCommand SpawnJob::command(std::size_t process) const {
  SpawnTicket ticket;
  ticket.rank = static_cast<int>(process);
  if (options_.kind == SpawnOptions::Kind::kDaemon) ticket.kind = SpawnTicket::Kind::kDaemon;
  Variables variables = place_variables(place_, process);
  if (!job_token_.empty()) variables[kJobToken] = job_token_;
  for (const auto& [name, value] : options_.environment) variables[name] = value;
  variables[SpawnTicket::kVariable] = ticket.text();
  ChildCommand result;
  // The very file that runs, though another may have its name by now.
  result.program = "/proc/self/exe";
  result.arguments = arguments_;
  result.environment = environment_with(variables);
  result.descriptors = {{nothing_.number(), STDIN_FILENO}, {task_.number(), kTaskDescriptor}};
  result.blocked_signals = blocked_signals_;
  return result;
}

ChildProcess::Start SpawnJob::start(std::size_t process) {
  ChildProcess::Start result;
  const FileDescriptor out = output(process, STDOUT_FILENO);
  const FileDescriptor err = output(process, STDERR_FILENO);
  reports_[process] = FileDescriptor(::memfd_create("sinew-spawn-report", MFD_CLOEXEC));
  if (!out.valid() || !err.valid() || !reports_[process].valid()) {
    result.failure = ProcessEnd::not_started(errno);
    return result;
  }
  ChildCommand start = command(process);
  start.descriptors.emplace_back(out.number(), STDOUT_FILENO);
  start.descriptors.emplace_back(err.number(), STDERR_FILENO);
  start.descriptors.emplace_back(reports_[process].number(), kReportDescriptor);
  return ChildProcess::start(start);
}

/// Invalid, with errno, if there are no descriptors left.
FileDescriptor SpawnJob::output(std::size_t process, int stream) {
  if (options_.output == SpawnOptions::Output::kPrefixed) {
    absl::StatusOr<FileDescriptor> pipe =
        relay_.open({absl::StrCat("[rank ", place_.rank(process), "] "), stream, FileDescriptor()});
    return pipe.ok() ? *std::move(pipe) : FileDescriptor();
  }
  FileDescriptor copy(::fcntl(stream, F_DUPFD_CLOEXEC, 0));
  // This process may have closed its own.
  return copy.valid() || errno != EBADF
             ? std::move(copy)
             : FileDescriptor(::fcntl(nothing_.number(), F_DUPFD_CLOEXEC, 0));
}

void SpawnJob::run() {
  ::pthread_setname_np(::pthread_self(), "sinew-spawn");
  supervisor_.run();
  MutexLock lock(mutex_);
  is_over_ = true;
  error_ = failure();
  changed_.notify_all();
}

void SpawnJob::on_change() {
  MutexLock lock(mutex_);
  for (std::size_t process = 0; process < pids_.size(); ++process) {
    pids_[process] = supervisor_.record(process).pid;
  }
  // The supervisor starts all before it does anything else.
  all_started_ = true;
  changed_.notify_all();
}

std::exception_ptr SpawnJob::failure() const {
  const JobState& state = supervisor_.state();
  for (std::size_t process = 0; process < reports_.size(); ++process) {
    const ProcessEnd end = state.process(process).end;
    const bool is_silent = state.process(process).state == JobState::ProcessState::kEnded &&
                           end.is_well() &&
                           read_report(reports_[process].number()).stage == SpawnStage::kStarted;
    if (state.first_failure() != process && !is_silent) continue;
    const pid_t pid = supervisor_.record(process).pid;
    const SpawnReport report = read_report(reports_[process].number());
    ErrorInfo info = report.error;
    auto cause = SpawnError::Cause::kEnd;
    if (report.stage == SpawnStage::kThrew) {
      cause = SpawnError::Cause::kException;
      info.message = absl::StrCat(who(process, pid), " ", thrown_text(report.error));
    } else {
      info.code = ErrorCode::kAborted;
      info.message = absl::StrCat(who(process, pid), " ", end.text());
      if (end.kind == ProcessEnd::Kind::kNotStarted) {
        info.code = absl::ErrnoToStatusCode(end.number);
      } else if (report.stage == SpawnStage::kStarted) {
        absl::StrAppend(&info.message, " before main() called init_launch()");
      }
    }
    return std::make_exception_ptr(
        SpawnError(std::move(info), static_cast<int>(process), pid, end, cause));
  }
  return nullptr;
}

}  // namespace sinew::internal
