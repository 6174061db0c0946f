#include "sinew/launch/run/launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/launch/internal/child_process.h"
#include "sinew/launch/run/end_table.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/named_line.h"
#include "sinew/rpc/base/job_token.h"

namespace sinew::internal {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

sigset_t signals_to_read() {
  sigset_t result;
  ::sigemptyset(&result);
  for (const int signal : kSignals) ::sigaddset(&result, signal);
  // Under nohup.
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler == SIG_IGN) ::sigdelset(&result, SIGHUP);
  return result;
}

/// Those that were blocked before.
sigset_t block_signals() {
  const sigset_t ours = signals_to_read();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &ours, &before);
  // The parent may have set it to be ignored, and then it cannot be known how children end.
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  return before;
}

FileDescriptor signal_descriptor() {
  const sigset_t ours = signals_to_read();
  FileDescriptor result(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!result.valid()) throw_error(absl::ErrnoToStatus(errno, "cannot receive signals"));
  return result;
}

/// Whether the process is one of those that led to this one, as are service managers and daemons of
/// schedulers, who signal all that they have started. Who looks for names may find this process and
/// its guard only.
bool is_above(pid_t process) {
  // In no namespace of this one.
  if (process == 0) return true;
  pid_t above = ::getppid();
  while (above > 0 && above != process) {
    const auto parent = named_line(absl::StrCat("/proc/", above, "/status"), "PPid:");
    if (!parent || !absl::SimpleAtoi(*parent, &above)) return false;
  }
  return above == process;
}

FileDescriptor open_nothing() {
  FileDescriptor result(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!result.valid()) throw_error(absl::ErrnoToStatus(errno, "cannot open /dev/null"));
  return result;
}

}  // namespace

Launcher::Launcher(RunOptions options)
    : options_(std::move(options)),
      place_(options_.place()),
      signals_before_(block_signals()),
      signals_(signal_descriptor()),
      nothing_(open_nothing()),
      job_token_(own_job_token(options_.nodes, options_.master_port)),
      guarded_(place_.local_processes(), -1),
      supervisor_(job(), relay_) {
  supervisor_.watch(signals_.number(), [this] { on_signal(); });
}

Supervisor::Job Launcher::job() {
  Supervisor::Job job;
  job.rules.processes = place_.local_processes();
  for (std::size_t process = 0; process < job.rules.processes; ++process) {
    const bool leads = place_.role(process).name == options_.leader ||
                       absl::StrCat(place_.rank(process)) == options_.leader;
    if (leads) job.rules.leaders.push_back(process);
  }
  job.rules.max_restarts = options_.max_restarts;
  job.rules.grace = options_.grace;
  job.rules.leave_grace = options_.leave_grace;
  job.rules.first_back_off = options_.first_back_off;
  job.start = [this](std::size_t process, int attempt) { return start(process, attempt); };
  job.on_change = [this] { on_change(); };
  job.stop_has_reached_all = [this] { return stop_has_reached_all_; };
  return job;
}

int Launcher::run() {
  if (!options_.log_dir.empty()) {
    say(absl::StrCat("output goes to ", options_.log_dir, "/", options_.run_id));
  }
  if (const std::string warning = options_.warning(); !warning.empty()) say(warning);
  supervisor_.run();
  report_end();
  return supervisor_.state().exit_status();
}

ChildProcess::Start Launcher::start(std::size_t process, int attempt) {
  ChildProcess::Start result;
  absl::Status ready = begin_attempt(attempt);
  absl::StatusOr<FileDescriptor> out = FileDescriptor();
  absl::StatusOr<FileDescriptor> err = FileDescriptor();
  if (ready.ok()) {
    out = output(process, attempt, STDOUT_FILENO);
    err = output(process, attempt, STDERR_FILENO);
    ready = out.ok() ? err.status() : out.status();
  }
  if (!ready.ok()) {
    say(std::string(ready.message()));
    result.failure = ProcessEnd::not_started(EIO);
    return result;
  }

  std::size_t index = process;
  const RunOptions::Role* role = options_.roles.data();
  for (; index >= role->role.processes; ++role) index -= role->role.processes;
  Variables variables = place_variables(place_, process);
  variables["TORCHELASTIC_RESTART_COUNT"] = absl::StrCat(attempt);
  variables["TORCHELASTIC_MAX_RESTARTS"] = absl::StrCat(options_.max_restarts);
  variables["TORCHELASTIC_RUN_ID"] = options_.run_id;
  if (!job_token_.empty()) variables[kJobToken] = job_token_;
  if (options_.tls) variables["SINEW_JOB_TLS"] = "1";

  ChildCommand command;
  command.program = role->command.front();
  command.arguments = role->command;
  command.environment = environment_with(variables);
  // One process gets what is piped in. None reads from the terminal, which would stop it.
  const bool reads = process == 0 && ::isatty(STDIN_FILENO) == 0;
  command.descriptors = {{reads ? STDIN_FILENO : nothing_.number(), STDIN_FILENO},
                         {out->number(), STDOUT_FILENO},
                         {err->number(), STDERR_FILENO}};
  command.group = ChildCommand::Group::kOwn;
  command.blocked_signals = signals_before_;
  command.announce = guard_.descriptor();
  result = ChildProcess::start(command);
  if (result.process) {
    guarded_[process] = result.process->pid();
  } else {
    say(absl::StrCat(command.program, " ", result.failure.text()));
  }
  return result;
}

absl::Status Launcher::begin_attempt(int attempt) {
  if (attempt == begun_attempt_) return absl::OkStatus();
  if (options_.master_port == 0) {
    // The one of the attempt before may be in use still by what it was connected with.
    absl::StatusOr<PortReservation> port = PortReservation::make();
    if (!port.ok()) return port.status();
    port_ = *std::move(port);
    place_.master_port = port_->port();
  }
  begun_attempt_ = attempt;
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> Launcher::output(std::size_t process, int attempt, int stream) {
  FileDescriptor log;
  if (!options_.log_dir.empty()) {
    absl::StatusOr<FileDescriptor> opened = open_log(process, attempt, stream);
    if (!opened.ok() || options_.prefix == RunOptions::Prefix::kNone) return opened;
    log = *std::move(opened);
  }
  if (options_.prefix == RunOptions::Prefix::kNone) {
    FileDescriptor copy(::fcntl(stream, F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) return absl::ErrnoToStatus(errno, "cannot pass on the output");
    return copy;
  }
  return relay_.open({prefix(process), stream, std::move(log)});
}

absl::StatusOr<FileDescriptor> Launcher::open_log(std::size_t process, int attempt,
                                                  int stream) const {
  const std::filesystem::path folder = std::filesystem::path(options_.log_dir) / options_.run_id /
                                       absl::StrCat("attempt_", attempt) /
                                       absl::StrCat("rank_", place_.rank(process));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::filesystem::path file =
      folder / (stream == STDOUT_FILENO ? "stdout.log" : "stderr.log");
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("--log-dir: cannot make ", folder.string(), ": ", error.message()));
  }
  // Appends: a run of the same id may have been here before.
  FileDescriptor result(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR | S_IRGRP));
  if (!result.valid()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("--log-dir: cannot write ", file.string()));
  }
  return result;
}

std::string Launcher::prefix(std::size_t process) const {
  const std::string role = options_.has_named_roles() ? place_.role(process).name : "rank";
  return absl::StrCat("[", role, " ", place_.rank(process), "] ");
}

void Launcher::on_change() {
  const JobState& state = supervisor_.state();
  for (std::size_t process = 0; process < guarded_.size(); ++process) {
    if (guarded_[process] < 0) continue;
    if (state.process(process).state != JobState::ProcessState::kEnded) continue;
    guard_.forget(std::exchange(guarded_[process], -1));
  }
  if (state.first_failure() && reported_failures_ == state.attempt()) {
    ++reported_failures_;
    say(process_text(supervisor_, place_, *state.first_failure()));
  }
  if (state.waits_to_restart() && announced_restarts_ == state.attempt()) {
    ++announced_restarts_;
    const auto pause =
        std::chrono::duration<double>(state.wake() - std::chrono::steady_clock::now());
    say(absl::StrFormat("starts all again in %.1f s: attempt %d of %d", pause.count(),
                        state.attempt() + 2, options_.max_restarts + 1));
  }
}

void Launcher::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.number(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    switch (signal) {
      case SIGUSR1:
      case SIGUSR2:
      case SIGCONT:
        supervisor_.signal_all(signal);
        break;
      case SIGTSTP:
        suspend();
        break;
      default:
        stop_has_reached_all_ = stop_has_reached_all_ || has_reached_all(info);
        supervisor_.stop(signal);
    }
  }
}

bool Launcher::has_reached_all(const signalfd_siginfo& info) const {
  // The terminal's goes to a group, where the processes are not.
  if (info.ssi_code == SI_KERNEL) return false;
  return is_above(static_cast<pid_t>(info.ssi_pid)) &&
         guard_.gets(static_cast<int>(info.ssi_signo));
}

void Launcher::suspend() const {
  // Their groups are not that of the terminal, so that they have not heard of it.
  supervisor_.signal_all(SIGSTOP);
  ::raise(SIGSTOP);
}

void Launcher::report_end() {
  const JobState& state = supervisor_.state();
  const bool is_asked = options_.table == RunOptions::Table::kAlways;
  // There is nothing more to end: a signal may end this, which may wait for a reader.
  ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  if (state.exit_status() != 0 || is_asked) std::cerr << end_table(supervisor_, place_);
}

void Launcher::say(const std::string& text) {
  relay_.say(STDERR_FILENO, absl::StrCat("sinew-run: ", text));
}

}  // namespace sinew::internal
