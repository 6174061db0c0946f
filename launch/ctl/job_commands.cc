#include "sinew/launch/ctl/job_commands.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sinew/launch/ctl/columns.h"
#include "sinew/launch/ctl/job_view.h"
#include "sinew/launch/ctl/json.h"
#include "sinew/launch/ctl/monitor.h"
#include "sinew/launch/ctl/stuck.h"
#include "sinew/launch/ctl/tables.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/job_token.h"

namespace sinew::internal {
namespace {

constexpr std::chrono::seconds kBetweenScreens(1);

struct JobFlags {
  std::string at;
  std::string name;
  std::string job = "default";
  TlsFiles tls;
  bool trusted_network = false;
  double timeout_s = 2;
  bool json = false;
  bool watch = false;
  double older_than_s = 1;
  std::string bind = "127.0.0.1:9464";
  bool for_everybody = false;
  std::string caller;
  std::uint64_t id = 0;
  std::vector<std::string> files;
  std::uint64_t events = 1000;
};

/// Rank 0 of a job that was started by env://.
std::string default_address(const EnvironmentReader& environment) {
  const auto host = environment("MASTER_ADDR");
  const auto port = environment("MASTER_PORT");
  return absl::StrCat(host.value_or("127.0.0.1"), ":", port.value_or("29500"));
}

absl::StatusOr<Credentials> credentials_of(const JobFlags& flags, const std::string& token,
                                           const EnvironmentReader& environment) {
  if (!flags.tls.ca.empty()) return Credentials::mutual_tls(flags.tls);
  const absl::StatusOr<bool> job_tls = switch_of(environment, "SINEW_JOB_TLS");
  if (!job_tls.ok()) return job_tls.status();
  if (*job_tls) return Credentials::for_worker(token, flags.job, "operator", {"localhost"});
  return flags.trusted_network ? Credentials::insecure_on_any_network() : Credentials::insecure();
}

absl::StatusOr<JobAccess> access_of(const JobFlags& flags) {
  const EnvironmentReader environment = process_environment();
  absl::StatusOr<std::string> token = read_job_token(environment);
  if (!token.ok()) return token.status();
  absl::StatusOr<Credentials> credentials = credentials_of(flags, *token, environment);
  if (!credentials.ok()) return credentials.status();
  JobAccess access;
  access.address = flags.at.empty() ? default_address(environment) : flags.at;
  access.worker_name = flags.name;
  access.client.credentials = *std::move(credentials);
  access.client.token = *std::move(token);
  access.patience = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(flags.timeout_s));
  return access;
}

absl::Status show(const JobFlags& flags, const Shown& shown) {
  const absl::StatusOr<JobAccess> access = access_of(flags);
  if (!access.ok()) return access.status();
  for (;;) {
    const absl::StatusOr<JobView> job = ask_job(*access, shown.wanted);
    if (!job.ok()) return job.status();
    absl::StatusOr<std::string> text = shown.show(*job);
    if (flags.json) text = as_json(*job);
    if (!text.ok()) return text.status();
    // Clears the screen and begins at its top, as watch(1) does.
    std::cout << (flags.watch ? "\033[H\033[2J" : "") << *text << std::flush;
    if (!flags.watch) return absl::OkStatus();
    std::this_thread::sleep_for(kBetweenScreens);
  }
}

absl::Status show_stuck(const JobFlags& flags) {
  const absl::StatusOr<JobAccess> access = access_of(flags);
  if (!access.ok()) return access.status();
  const absl::StatusOr<std::vector<Finding>> findings =
      look_for_stuck(*access, std::chrono::duration_cast<std::chrono::microseconds>(
                                  std::chrono::duration<double>(flags.older_than_s)));
  if (!findings.ok()) return findings.status();
  const std::vector<Finding>& found = *findings;
  if (flags.json) {
    std::cout << as_json(found);
    return absl::OkStatus();
  }
  if (found.empty()) std::cout << "nothing is stuck\n";
  for (const Finding& finding : found) {
    for (std::size_t i = 0; i < finding.lines.size(); ++i) {
      if (!finding.lines[i].empty())
        std::cout << (i == 0 ? "" : "    ") << finding.lines[i] << "\n";
    }
  }
  return absl::OkStatus();
}

absl::Status monitor(const JobFlags& flags) {
  const absl::StatusOr<JobAccess> access = access_of(flags);
  if (!access.ok()) return access.status();
  return serve_monitor(*access, flags.bind,
                       flags.for_everybody ? MonitorFor::kEverybody : MonitorFor::kTokenOrThisHost);
}

absl::Status cancel(const JobFlags& flags) {
  const absl::StatusOr<JobAccess> access = access_of(flags);
  if (!access.ok()) return access.status();
  const absl::StatusOr<bool> done = ask_cancel(*access, flags.caller, flags.id);
  if (!done.ok()) return done.status();
  if (*done) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("the worker at ", access->address, " serves no call of '",
                                          flags.caller, "' with the number ", flags.id,
                                          ": sinew-ctl calls lists them"));
}

/// On one time line: each line begins with its time, in seconds with nine digits behind the point.
absl::Status dump(const JobFlags& flags) {
  const absl::StatusOr<JobAccess> access = access_of(flags);
  if (!access.ok()) return access.status();
  const absl::StatusOr<std::vector<WorkerEvents>> all = ask_events(*access, flags.events);
  if (!all.ok()) return all.status();
  std::vector<std::pair<std::string, std::string>> lines;
  for (const WorkerEvents& worker : *all) {
    const std::string name = cut_text(worker.name);
    if (!worker.answered.ok()) {
      std::cerr << name << " does not answer: " << worker.answered.message() << "\n";
    }
    for (const std::string& line : worker.lines) {
      const std::size_t end = line.find(' ');
      if (end != std::string::npos) lines.push_back({line.substr(0, end), name + line.substr(end)});
    }
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [time, rest] : lines)
    std::cout << cut_text(time) << " " << cut_text(rest) << "\n";
  return absl::OkStatus();
}

absl::Status stop(const JobFlags& flags) {
  const absl::StatusOr<JobAccess> access = access_of(flags);
  if (!access.ok()) return access.status();
  const absl::StatusOr<bool> done = ask_stop(*access);
  if (!done.ok()) return done.status();
  if (*done) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the program of the worker at ", access->address,
      " does not wait to be asked (Worker::serve_until_done(), StopSignal): end its process"));
}

/// The traces of several processes as one: each is a list that may be open at its end.
absl::Status merge_traces(const JobFlags& flags) {
  std::cout << "[";
  const char* between = "\n";
  for (const std::string& path : flags.files) {
    std::ifstream file(path);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    absl::string_view events = absl::StripAsciiWhitespace(text);
    if (!absl::ConsumePrefix(&events, "[")) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is no trace that Sinew has written"));
    }
    absl::ConsumeSuffix(&events, "]");
    // The last line of a process that was killed may be a part of one.
    const std::size_t end = events.rfind('}');
    if (end == absl::string_view::npos) continue;
    std::cout << between << absl::StripAsciiWhitespace(events.substr(0, end + 1));
    between = ",\n";
  }
  std::cout << "\n]\n";
  return absl::OkStatus();
}

void add_access(CLI::App& command, JobFlags& flags) {
  command.add_option(
      "--at", flags.at,
      "HOST:PORT of any worker of the job; without it MASTER_ADDR and MASTER_PORT say where");
  command.add_option("--name", flags.name,
                     "Its name, with TLS, if its certificate is for that alone");
  command.add_option("--job", flags.job, "WorkerOptions::job, with SINEW_JOB_TLS")
      ->capture_default_str();
  CLI::Option* const ca =
      command.add_option("--ca", flags.tls.ca, "Authorities of the job, in PEM");
  CLI::Option* const certificate =
      command.add_option("--cert", flags.tls.certificate, "Certificate, in PEM");
  CLI::Option* const key = command.add_option("--key", flags.tls.key, "Its private key, in PEM");
  ca->needs(certificate)->needs(key);
  certificate->needs(ca);
  key->needs(ca);
  command.add_flag("--trusted-network", flags.trusted_network, "Asks other hosts without TLS")
      ->excludes(ca);
  command.add_option("--timeout", flags.timeout_s, "Seconds that a worker has to answer")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
}

}  // namespace

void add_job_commands(CLI::App& app, Command& command) {
  const auto flags = std::make_shared<JobFlags>();
  for (const Shown& shown : all_shown()) {
    CLI::App* const added = app.add_subcommand(shown.command, shown.help);
    add_access(*added, *flags);
    added->add_flag("--json", flags->json, "What the workers say, as operator.proto has it");
    added->add_flag("--watch", flags->watch, "Again and again, a second apart");
    added->callback(
        [&command, &shown, flags] { command = [&shown, flags] { return show(*flags, shown); }; });
  }
  CLI::App* const stuck = app.add_subcommand("stuck", "What does not go on, and why");
  add_access(*stuck, *flags);
  stuck
      ->add_option("--older-than", flags->older_than_s,
                   "Seconds from which on a call or a barrier counts")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  stuck->add_flag("--json", flags->json, "A list of findings, each a list of lines");
  stuck->callback([&command, flags] { command = [flags] { return show_stuck(*flags); }; });
  CLI::App* const monitors =
      app.add_subcommand("monitor", "Serves a page, and metrics for Prometheus, of the whole job");
  add_access(*monitors, *flags);
  monitors->add_flag(
      "--for-everybody", flags->for_everybody,
      "Without a token, on an address that others reach: all that reach it may look");
  monitors->add_option("--bind", flags->bind, "HOST:PORT to serve them at")->capture_default_str();
  monitors->callback([&command, flags] { command = [flags] { return monitor(*flags); }; });
  CLI::App* const cancels =
      app.add_subcommand("cancel", "Cancels a call that the worker at --at serves");
  add_access(*cancels, *flags);
  cancels->add_option("CALLER", flags->caller, "Its worker; \"\" for a client")->required();
  cancels->add_option("ID", flags->id, "Its number there")->required();
  CLI::App* const stops = app.add_subcommand(
      "stop",
      "Asks the worker at --at to leave and end, as SIGTERM does: no new calls, then the "
      "end of those that run");
  add_access(*stops, *flags);
  stops->callback([&command, flags] { command = [flags] { return stop(*flags); }; });
  CLI::App* const dumps = app.add_subcommand(
      "dump", "What the workers did last, on one time line: calls, links, members, lines of logs");
  add_access(*dumps, *flags);
  dumps->add_option("--events", flags->events, "Of each process, the latest")
      ->check(CLI::Range(1, 16384))
      ->capture_default_str();
  dumps->callback([&command, flags] { command = [flags] { return dump(*flags); }; });
  CLI::App* const merges = app.add_subcommand(
      "merge-traces", "Prints the traces of several processes (SINEW_TRACE) as one, for Perfetto");
  merges->add_option("FILE", flags->files, "As workers have written them")->required();
  merges->callback([&command, flags] { command = [flags] { return merge_traces(*flags); }; });
  cancels->callback([&command, flags] { command = [flags] { return cancel(*flags); }; });
}

}  // namespace sinew::internal
